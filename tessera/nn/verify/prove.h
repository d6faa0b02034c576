// SPDX-License-Identifier: Apache-2.0
// Proofs that a model has a property for all inputs of a box, and searches for inputs for which it has not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/verify/input_box.h"
#include "tessera/nn/verify/property.h"
#include "tessera/nn/verify/structure.h"

namespace tessera {

/// The result of a proof: it holds, it does not, or a limit was reached before either was known.
enum class Verdict : std::uint8_t { proven, refuted, unknown };
std::string_view verdict_name(Verdict verdict);  ///< The verdict as one word.

/// How far a proof is.
struct ProveProgress {
  std::uint64_t boxes = 0, waiting = 0;  ///< examined, and still to be
  double share = 0;                      ///< of the inputs (by volume), for which it is proven
  double seconds = 0;                    ///< Since it began.
};
std::string to_string(const ProveProgress& progress);  ///< "12 boxes, 3 wait, proven for 40 % of the inputs, 2 s"

/// Options of prove().
struct ProveOptions {
  double seconds = 60;              ///< limits: each ends the search with `unknown`
  std::uint64_t boxes = 1'000'000;  ///< that are examined
  std::uint64_t bytes = 1u << 30;   ///< of boxes that are kept
  bool linear_bounds = true;        ///< else intervals alone, which are quicker for each box and need many more
  bool attack = true;               ///< look for counterexamples by gradients before, and at the parts of the box
  std::uint64_t seed = 1;           ///< of attacks
  /// Samples of a call that the proof is for, at most: larger products may go to a vendor's library, of whose rounding
  /// nothing is known. On `cpu` and `interp` it makes no difference.
  std::int64_t batch = 1;
  std::function<void(const ProveProgress&)> progress = {};  ///< told twice a second
};

/// What came of it. Copies are large if `tree` is.
struct Proof {
  Property property = {};                             ///< What was to be proven.
  InputBox box = {};                                  ///< The inputs.
  std::int64_t batch = 1;                             ///< ProveOptions
  Verdict verdict = Verdict::unknown;                 ///< What was found.
  std::optional<Counterexample> counterexample = {};  ///< of refuted: run on the model's device, one sample alone
  std::string reason = {};                            ///< of unknown: why, and how far it came
  /// Bounds of each output over the box; empty if there are none. Of `robust`, of all inputs within the radius.
  std::vector<double> low = {}, high = {};
  /// The least bound, over all parts of the box, of what must not be below 0 for the property: of y - low and high - y;
  /// of the difference between the class and each other.
  double margin = 0;
  std::int64_t kept_class = -1;  ///< of robust
  double share = 0;              ///< of the inputs, by volume, for which it is proven: 1 if it is for all
  std::uint64_t boxes = 0;       ///< examined
  double seconds = 0;            ///< How long it took.
  /// How the box was split, in pre-order: the place of the input that is halved; or, of a part that is not split, -1
  /// where intervals decide, -2 where linear bounds do.
  std::vector<std::int32_t> tree = {};
};
std::string to_string(const Proof& proof);  ///< lines for people

namespace verification {

/// A model, whatever its type.
struct Subject {
  Layers layers;                             ///< The layers.
  std::function<Array(const Array& x)> run;  ///< Calls the model.
  Device device;                             ///< Where the model is.
};
Device device_of(const Layers& layers);  ///< of its first array; current_device() if there is none
/// A model, for the functions below.
template <class Model>
Subject subject_of(const Model& model) {
  Layers layers = layers_of(model);
  const Device device = device_of(layers);
  return {std::move(layers), [&model](const Array& x) -> Array { return model(x); }, device};
}
/// The part of prove() that does not depend on the model's type.
Proof prove_subject(const Subject& subject, const Property& property, const InputBox& box, const ProveOptions& options);
/// The part of find_counterexample() that does not depend on the model's type.
std::optional<Counterexample> search_subject(const Subject& subject, const Property& property, const Array& data,
                                             std::uint64_t seed);

}  // namespace verification

/// Whether the model, in inference, has the property for every f32 input of the box, as its device computes it: proven
/// with all roundings of f32, in whatever order sums are taken; refuted with an input, for which the model was run; or
/// unknown, with the reason. By interval bounds (Moore 1966; Gowal et al. 2018) and linear bounds (CROWN; Zhang et al.
/// 2018) over parts of the box, which is halved until each part is decided.
///
/// Models are Sequential, Residual and, in any order, Dense, Conv2d, BatchNorm, LayerNorm, RmsNorm, MaxPool2d,
/// AveragePool2d, Softmax, Dropout, Flatten and activations, with f32 parameters. Of others, and of the properties
/// `monotone`, `lipschitz` and `predicate`, nothing is proven; they may be refuted. ShapeError: the box is no sample of
/// the model's; ArgumentError: in a Training scope, or an inequality of another number of outputs.
template <class Model>
Proof prove(const Model& model, const Property& property, const InputBox& box, const ProveOptions& options = {}) {
  return verification::prove_subject(verification::subject_of(model), property, box, options);
}

/// Looks for an input that breaks a property: each sample of `data` (batch, ...), whatever the model is. For `robust`
/// inputs within the radius of each, at random and by projected gradients (Madry et al. 2018); for `monotone` and
/// `lipschitz` changes of each. Nothing: none was found, which proves nothing.
template <class Model>
std::optional<Counterexample> find_counterexample(const Model& model, const Property& property, const Array& data,
                                                  std::uint64_t seed = 1) {
  return verification::search_subject(verification::subject_of(model), property, data, seed);
}

}  // namespace tessera
