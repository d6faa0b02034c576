// SPDX-License-Identifier: Apache-2.0
// Sizes of blocks that follow from a device's limits, for kernels of the library.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

/// Threads of a block of one dimension: `wanted`, a power of two, or as many as the device allows, a power of two too.
constexpr std::uint32_t block_threads(const Capabilities& can, std::uint32_t wanted) {
  return std::min(wanted, std::bit_floor(std::max(1u, std::min(can.max_block_threads, can.max_block[0]))));
}

}  // namespace tessera
