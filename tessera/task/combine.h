// SPDX-License-Identifier: Apache-2.0
// The operations of reductions by several tasks.
#pragma once

#include <cstdint>

namespace tessera {

/// The operation that combines contributions. The initial values of slots are, in this order, 0, 1, the largest number
/// and the smallest number.
enum class Combine : std::uint8_t { sum, product, minimum, maximum };
/// Returns the enumerator's name, such as "sum".
const char* to_string(Combine op);

}  // namespace tessera
