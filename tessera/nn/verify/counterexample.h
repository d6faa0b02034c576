// SPDX-License-Identifier: Apache-2.0
// Confirms candidate counterexamples by running the model on them alone. Internal.
#pragma once

#include "tessera/nn/verify/attack.h"

namespace tessera::verification {

/// The class that the model predicts for one sample; -1 if it has none.
std::int64_t class_at(const Runner& runner, const std::vector<float>& x);
/// For `finite`, `bounded`, `inequality`, `probabilities`.
std::optional<Counterexample> confirmed(const Runner& runner, const Property& property, const std::vector<float>& x);
/// For `robust`: finds two inputs of different classes, within the radius, one of them in the box. `x` is near the box
/// and has another class than the box's `centre`. If the box's input nearest to x has x's class, too, the class changes
/// within the box, and the pair is found by bisection.
std::optional<Counterexample> confirmed_pair(const Runner& runner, const Property& property, const InputBox& box,
                                             const std::vector<float>& centre, const std::vector<float>& x);

}  // namespace tessera::verification
