// SPDX-License-Identifier: Apache-2.0
// Finds loads and stores that are adjacent in memory, such as those of a struct's members, so that they can share wide
// accesses. Compares indices only: sums of the same values that differ by constants.
#pragma once

#include <vector>

#include "tessera/backend/cpu/codegen/shape.h"

namespace tessera::cpu {

inline constexpr std::int64_t most_stride = 8;  ///< limit for wide accesses: beyond it, most of the memory is unused

/// Number of adjacent elements (part of a row) that stores must cover to share accesses at a stride known only at
/// launch.
inline constexpr std::int64_t row_part = 4;

/// Loads, or stores, of one statement list whose elements are less than a stride apart. If one of them executes, all
/// do, so the first may access the memory of all.
struct Window {
  std::int64_t low = 0, high = 0;  ///< smallest and largest constant that a member adds to the index
  unsigned members = 0;            ///< number of distinct constants
};
/// The window of a load or store whose index is linear with a known stride other than 1. At strides known only at
/// launch, only stores that cover a part of a row have one.
struct Place {
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  std::uint32_t window = none;  ///< index in Accesses::windows
  std::uint32_t family = none;  ///< equal if memory, stride and index agree, except for a constant
  std::int64_t constant = 0;    ///< the constant that this access adds to the index
};
struct Accesses {
  std::vector<Place> places;  ///< by node
  std::vector<Window> windows;
};
Accesses find_accesses(const ir::Function& fn, const Analysis& analysis);

}  // namespace tessera::cpu
