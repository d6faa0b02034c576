// SPDX-License-Identifier: Apache-2.0
// The operations of reductions by several tasks.
#pragma once

#include <cstdint>

namespace tessera {

/// How contributions are combined. The initial values are 0, 1, the largest and the smallest number.
enum class Combine : std::uint8_t { sum, product, minimum, maximum };
const char* to_string(Combine op);

}  // namespace tessera
