// SPDX-License-Identifier: Apache-2.0
// The elements of fragments in the registers of a lane (ir::FragmentLayout).
#pragma once

#include <cstdint>

#include "tessera/ir/node.h"

namespace tessera::ir::engine {

/// Returns the number (16 * row + column) of element k of a lane of an accumulator. It is not less than 256 if the lane
/// has no such element.
constexpr std::int64_t element_of(FragmentLayout layout, std::int64_t k, std::int64_t lane, std::int64_t lanes) {
  switch (layout) {
    case FragmentLayout::mma: return (lane / 4 + k / 2 % 2 * 8) * 16 + k / 4 * 8 + lane % 4 * 2 + k % 2;
    case FragmentLayout::mfma: return lane % 16 * 16 + lane / 16 * 4 + k;
    case FragmentLayout::wmma: return lane % 16 * 16 + 2 * k + lane / 16;
    default: return k * lanes + lane;
  }
}
/// Returns the number of the first of the two elements of word r of a lane of a left factor.
constexpr std::int64_t pair_of(FragmentLayout layout, std::int64_t r, std::int64_t lane) {
  switch (layout) {
    case FragmentLayout::mma: return (lane / 4 + r % 2 * 8) * 16 + lane % 4 * 2 + r / 2 * 8;
    case FragmentLayout::mfma: return lane % 16 * 16 + lane / 16 * 4 + 2 * r;
    default: return lane % 16 * 16 + 2 * r;
  }
}

}  // namespace tessera::ir::engine
