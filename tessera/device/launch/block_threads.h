// SPDX-License-Identifier: Apache-2.0
// Block sizes, within a device's limits, for the library's kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

/// Returns the number of threads for a one-dimensional block: `wanted`, which must be a power of two, or the largest
/// power of two that the device supports if that is smaller.
constexpr std::uint32_t block_threads(const Capabilities& can, std::uint32_t wanted) {
  return std::min(wanted, std::bit_floor(std::max(1u, std::min(can.max_block_threads, can.max_block[0]))));
}

}  // namespace tessera
