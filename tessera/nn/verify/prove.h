// SPDX-License-Identifier: Apache-2.0
// Proves that a model has a property for all inputs of a box, and searches for counterexamples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/nn/verify/input_box.h"
#include "tessera/nn/verify/layer_list.h"
#include "tessera/nn/verify/property.h"

namespace tessera {

/// The result of a proof: proven, refuted, or unknown because a limit was reached.
enum class Verdict : std::uint8_t { proven, refuted, unknown };
std::string_view verdict_name(Verdict verdict);  ///< The verdict as one word.

/// Progress of a proof.
struct ProveProgress {
  std::uint64_t boxes = 0, waiting = 0;  ///< boxes examined, and boxes still to examine
  double share = 0;                      ///< fraction of the inputs (by volume) for which it is proven
  double seconds = 0;                    ///< Since the start.
};
std::string to_string(const ProveProgress& progress);  ///< "12 boxes, 3 waiting, proven for 40 % of the inputs, 2 s"

/// Options of prove().
struct ProveOptions {
  double seconds = 60;              ///< limits: reaching one ends the search with `unknown`
  std::uint64_t boxes = 1'000'000;  ///< boxes to examine
  std::uint64_t bytes = 1u << 30;   ///< memory for boxes
  bool linear_bounds = true;        ///< otherwise intervals only, which are faster per box but need many more boxes
  bool attack = true;               ///< search for counterexamples by gradients first, and in parts of the box
  std::uint64_t seed = 1;           ///< of attacks
  /// Most samples per call for which the proof holds: larger products may use a vendor library, whose rounding is
  /// unknown. Irrelevant on `cpu` and `interp`.
  std::int64_t batch = 1;
  Callback<void(const ProveProgress&)> progress = {};  ///< called twice a second
};

/// The result of prove(). Copies are large if `tree` is.
struct Proof {
  Property property = {};              ///< The property to prove.
  InputBox box = {};                   ///< The inputs.
  std::int64_t batch = 1;              ///< see ProveOptions
  Verdict verdict = Verdict::unknown;  ///< The result.
  /// if refuted: computed on the model's device, for one sample alone
  std::optional<Counterexample> counterexample = {};
  std::string reason = {};  ///< if unknown: why, and how far the search came
  /// Bounds of each output over the box; empty if there are none. For `robust`, over all inputs within the radius.
  std::vector<double> low = {}, high = {};
  /// The smallest lower bound, over all parts of the box, of the quantity that must not be below 0: y - low and high -
  /// y; for `robust`, the difference between the class's output and each other.
  double margin = 0;
  std::int64_t kept_class = -1;  ///< for robust
  double share = 0;              ///< fraction of the inputs, by volume, for which it is proven: 1 for all
  std::uint64_t boxes = 0;       ///< boxes examined
  double seconds = 0;            ///< How long it took.
  /// The splits of the box in pre-order: the index of the bisected input element or, for a part that is not split, -1
  /// if intervals decide it, -2 if linear bounds do.
  std::vector<std::int32_t> tree = {};
};
std::string to_string(const Proof& proof);  ///< human-readable lines

namespace verification {

/// A model, independent of its type.
struct Subject {
  LayerList layers;                     ///< The layers.
  Callback<Array(const Array& x)> run;  ///< Calls the model.
  Device device;                        ///< The model's device.
};
Device device_of(const Layers& layers);  ///< of its first array; current_device() if it has none
/// Converts a model for the functions below.
template <class Model>
Subject subject_of(const Model& model) {
  LayerList layers = layers_of(model);
  const Device device = device_of(layers);
  return {std::move(layers), [&model](const Array& x) -> Array { return model(x); }, device};
}
/// The part of prove() that does not depend on the model's type.
Proof prove_subject(const Subject& subject, const Property& property, const InputBox& box, const ProveOptions& options);
/// The part of find_counterexample() that does not depend on the model's type.
std::optional<Counterexample> search_subject(const Subject& subject, const Property& property, const Array& data,
                                             std::uint64_t seed);

}  // namespace verification

/// Decides whether the model, in inference, has the property for every f32 input of the box, as its device computes it:
/// proven including all f32 rounding, in any order of summation; refuted by an input that the model was run on; or
/// unknown, with the reason. Uses interval bounds (Moore 1966; Gowal et al. 2018) and linear bounds (CROWN; Zhang et
/// al. 2018) over parts of the box, which is bisected until each part is decided.
///
/// Supports Sequential, Residual and, in any order, Dense, Conv2d, BatchNorm, LayerNorm, RmsNorm, MaxPool2d,
/// AveragePool2d, Softmax, Dropout, Flatten and activations, with f32 parameters. Other models, and the properties
/// `monotone`, `lipschitz` and `predicate`, are never proven; they may be refuted. Throws ShapeError if the box does
/// not fit the model's input; ArgumentError in a Training scope, or if an inequality has the wrong number of
/// coefficients.
template <class Model>
Proof prove(const Model& model, const Property& property, const InputBox& box, const ProveOptions& options = {}) {
  return verification::prove_subject(verification::subject_of(model), property, box, options);
}

/// Searches for an input that violates a property: tries each sample of `data` (batch, ...), for any model. For
/// `robust`, also inputs within the radius of each sample, at random and by projected gradients (Madry et al. 2018);
/// for `monotone` and `lipschitz`, changes of each. An empty result proves nothing.
template <class Model>
std::optional<Counterexample> find_counterexample(const Model& model, const Property& property, const Array& data,
                                                  std::uint64_t seed = 1) {
  return verification::search_subject(verification::subject_of(model), property, data, seed);
}

}  // namespace tessera
