// SPDX-License-Identifier: Apache-2.0
// Block sizes for the library's kernels that respect a device's limits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

/// Returns the number of threads of a one-dimensional block: `wanted`, a power of two, or the largest power of two that
/// the device allows.
constexpr std::uint32_t block_threads(const Capabilities& can, std::uint32_t wanted) {
  return std::min(wanted, std::bit_floor(std::max(1u, std::min(can.max_block_threads, can.max_block[0]))));
}

}  // namespace tessera
