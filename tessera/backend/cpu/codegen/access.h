// SPDX-License-Identifier: Apache-2.0
// Which loads and stores lie side by side in memory, as those of a struct's members do: such share wide accesses. Found
// from the indices alone: sums of the same values that differ by constants.
#pragma once

#include <vector>

#include "tessera/backend/cpu/codegen/shape.h"

namespace tessera::cpu {

inline constexpr std::int64_t most_stride = 8;  ///< of wide accesses; beyond, most of what they touch is not wanted

/// Stores of so many elements side by side, at a stride known at launch, share accesses too: parts of rows.
inline constexpr std::int64_t row_part = 4;

/// Loads, or stores, of one list of statements whose elements lie less than a stride apart. All of them are reached
/// when one is, so whichever comes first may touch what any of them does.
struct Window {
  std::int64_t low = 0, high = 0;  ///< constants that the least and the greatest add to the index
  unsigned members = 0;            ///< different ones
};
/// Where a load or a store whose index is linear, with a known stride other than 1, belongs; of strides known at launch
/// a store that is one of a whole part of a row.
struct Place {
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  std::uint32_t window = none;  ///< in Accesses::windows
  std::uint32_t family = none;  ///< equal: the same memory, stride and index but for a constant
  std::int64_t constant = 0;    ///< what this one adds to the index
};
struct Accesses {
  std::vector<Place> places;  ///< by node
  std::vector<Window> windows;
};
Accesses find_accesses(const ir::Function& fn, const Analysis& analysis);

}  // namespace tessera::cpu
