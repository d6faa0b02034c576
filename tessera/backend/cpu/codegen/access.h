// SPDX-License-Identifier: Apache-2.0
// Finds loads and stores of adjacent elements, such as the members of a struct, so that they can be combined into wide
// accesses. Two accesses are adjacent if their indices are sums of the same values and differ only by a constant.
#pragma once

#include <vector>

#include "tessera/backend/cpu/codegen/shape.h"

namespace tessera::cpu {

inline constexpr std::int64_t most_stride = 8;  ///< larger strides are not combined, because most of the loaded data
                                                ///< would be unused

/// Stores with a stride that is known only at launch are combined if they cover this many adjacent elements of a row.
inline constexpr std::int64_t row_part = 4;

/// Loads or stores in the same block of statements whose elements are less than a stride apart. Either all of them
/// execute or none does, so the first one may access the memory of all of them.
struct Window {
  std::int64_t low = 0, high = 0;  ///< smallest and largest constant that an access adds to the index
  unsigned members = 0;            ///< number of distinct constants
};
/// The window that a load or store belongs to. Accesses have a window if their index is linear with a constant stride
/// other than 1. If the stride is known only at launch, only stores that cover `row_part` elements have a window.
struct Place {
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  std::uint32_t window = none;  ///< index in Accesses::windows
  std::uint32_t family = none;  ///< accesses to the same memory with the same stride, whose indices differ only by a
                                ///< constant, have the same family
  std::int64_t constant = 0;    ///< the constant that this access adds to the index
};
struct Accesses {
  std::vector<Place> places;  ///< indexed by node
  std::vector<Window> windows;
};
Accesses find_accesses(const ir::Function& fn, const Analysis& analysis);

}  // namespace tessera::cpu
