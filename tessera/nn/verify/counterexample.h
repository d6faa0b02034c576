// SPDX-License-Identifier: Apache-2.0
// Whether an input that seems to break a property does, the model being run for it alone. Internal.
#pragma once

#include "tessera/nn/verify/attack.h"

namespace tessera::verification {

/// The class that the model gives one sample; -1 if it has none.
std::int64_t class_at(const Runner& runner, const std::vector<float>& x);
/// By `finite`, `bounded`, `inequality`, `probabilities`.
std::optional<Counterexample> confirmed(const Runner& runner, const Property& property, const std::vector<float>& x);
/// By `robust`: two inputs of different classes, one of them in the box, within the radius. `x` is near the box, and of
/// another class than the box's `centre`: if the nearest input of the box has x's class, too, that changes within it,
/// and is found between the two.
std::optional<Counterexample> confirmed_pair(const Runner& runner, const Property& property, const InputBox& box,
                                             const std::vector<float>& centre, const std::vector<float>& x);

}  // namespace tessera::verification
