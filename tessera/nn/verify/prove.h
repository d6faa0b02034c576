// SPDX-License-Identifier: Apache-2.0
// Proves that a model has a property for all inputs in a box, and searches for counterexamples.
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
std::string_view verdict_name(Verdict verdict);  ///< Returns the verdict as one word.

/// Progress of a proof.
struct ProveProgress {
  std::uint64_t boxes = 0, waiting = 0;  ///< boxes examined so far, and boxes that remain
  double share = 0;                      ///< fraction of the inputs (by volume) for which the property is proven so far
  double seconds = 0;                    ///< Seconds since the start.
};
/// Formats as "12 boxes, 3 waiting, proven for 40 % of the inputs, 2 s".
std::string to_string(const ProveProgress& progress);

/// Options of prove().
struct ProveOptions {
  double seconds = 60;              ///< time limit; if any limit is reached, the result is `unknown`
  std::uint64_t boxes = 1'000'000;  ///< limit of the number of boxes
  std::uint64_t bytes = 1u << 30;   ///< limit of the memory for boxes
  bool linear_bounds = true;        ///< use linear bounds; intervals are faster per box, but need many more boxes
  bool attack = true;      ///< search for counterexamples with gradients, before the proof and in parts of the box
  std::uint64_t seed = 1;  ///< seed for attacks
  /// Largest number of samples per call for which the proof holds. Larger products may run in a vendor library whose
  /// rounding is unknown. Has no effect on `cpu` and `interp`.
  std::int64_t batch = 1;
  Callback<void(const ProveProgress&)> progress = {};  ///< called about twice a second
};

/// The result of prove(). Copying it is expensive if `tree` is large.
struct Proof {
  Property property = {};              ///< The property to prove.
  InputBox box = {};                   ///< The inputs.
  std::int64_t batch = 1;              ///< largest number of samples per call; see ProveOptions
  Verdict verdict = Verdict::unknown;  ///< The result.
  /// If refuted: a counterexample, computed on the model's device as a batch of one sample.
  std::optional<Counterexample> counterexample = {};
  std::string reason = {};  ///< If unknown: the reason, and how much was proven.
  /// Bounds of each output over the box, or over all inputs within the radius for `robust`. Empty if there are no
  /// bounds.
  std::vector<double> low = {}, high = {};
  /// The smallest lower bound, over all parts of the box, of the quantities that must not be negative. For bounds,
  /// these are y - low and high - y. For `robust`, they are the differences between the output of the class and each
  /// other output.
  double margin = 0;
  std::int64_t kept_class = -1;  ///< the class of the box's centre; for robust
  double share = 0;              ///< fraction of the inputs, by volume, for which the property is proven
  std::uint64_t boxes = 0;       ///< number of boxes examined
  double seconds = 0;            ///< Duration in seconds.
  /// The splits of the box in pre-order. The entry of a part that is split is the index of the input element that is
  /// bisected. For other parts, the entry is -1 if intervals decide the part, and -2 if linear bounds decide it.
  std::vector<std::int32_t> tree = {};
};
std::string to_string(const Proof& proof);  ///< Describes the result on several lines.

namespace verification {

/// A model, without its type.
struct Subject {
  LayerList layers;                     ///< The layers.
  Callback<Array(const Array& x)> run;  ///< Calls the model.
  Device device;                        ///< The model's device.
};
/// Returns the device of the first array, or current_device() if there are no arrays.
Device device_of(const Layers& layers);
/// Converts a model to a Subject. The Subject refers to the model.
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

/// Decides whether a model in inference mode has a property for every f32 input in a box, as computed on the model's
/// device. A proof covers all f32 rounding, in any order of summation. The property is refuted if the model violates it
/// for an input that was run. Otherwise the result is unknown, and Proof::reason explains why. The proof uses interval
/// bounds (Moore 1966; Gowal et al. 2018) and linear bounds (CROWN; Zhang et al. 2018), and bisects the box until each
/// part is decided. Supports Sequential, Residual, Dense, Conv2d, BatchNorm, LayerNorm, RmsNorm, MaxPool2d,
/// AveragePool2d, Softmax, Dropout, Flatten and activations, in any order, with f32 parameters. Other models, and the
/// properties `monotone`, `lipschitz` and `predicate`, can be refuted but not proven. Throws ShapeError if the box does
/// not match the model's input. Throws ArgumentError in a Training scope, or if an inequality has the wrong number of
/// coefficients.
template <class Model>
Proof prove(const Model& model, const Property& property, const InputBox& box, const ProveOptions& options = {}) {
  return verification::prove_subject(verification::subject_of(model), property, box, options);
}

/// Searches for an input that violates a property, for any model. Tries each sample of `data` (batch, ...). For
/// `robust`, also tries inputs within the radius of each sample, at random and with projected gradients (Madry et al.
/// 2018). For `monotone` and `lipschitz`, also tries changes of each sample. An empty result does not prove the
/// property.
template <class Model>
std::optional<Counterexample> find_counterexample(const Model& model, const Property& property, const Array& data,
                                                  std::uint64_t seed = 1) {
  return verification::search_subject(verification::subject_of(model), property, data, seed);
}

}  // namespace tessera
