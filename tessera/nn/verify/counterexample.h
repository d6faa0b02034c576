// SPDX-License-Identifier: Apache-2.0
// Confirms candidate counterexamples by running the model on each of them separately. Internal.
#pragma once

#include "tessera/nn/verify/attack.h"

namespace tessera::verification {

/// Returns the class that the model predicts for one sample, or -1 if there is none.
std::int64_t class_at(const Runner& runner, const std::vector<float>& x);
/// Confirms a counterexample of `finite`, `bounded`, `inequality` or `probabilities`.
std::optional<Counterexample> confirmed(const Runner& runner, const Property& property, const std::vector<float>& x);
/// Confirms a counterexample of `robust`: returns two inputs of different classes. Their distance is at most the
/// radius, and at least one of them is in the box. `x` must be near the box and have another class than `centre`, the
/// centre of the box. If the point of the box that is nearest to x has the same class as x, the class changes within
/// the box, and the pair is found by bisection.
std::optional<Counterexample> confirmed_pair(const Runner& runner, const Property& property, const InputBox& box,
                                             const std::vector<float>& centre, const std::vector<float>& x);

}  // namespace tessera::verification
