// SPDX-License-Identifier: Apache-2.0
// Creates block arrays from computed tiles, and accesses tiles without evaluating them. Internal.
#pragma once

#include <utility>
#include <vector>

#include "tessera/task/block_array.h"

namespace tessera {

struct BlockArrayAccess {
  /// Creates a block array from tiles that were already computed.
  static BlockArray of(Shape shape, Shape tile, DType dtype, std::vector<Array> tiles) {
    BlockArray out = BlockArray::layout(std::move(shape), std::move(tile), dtype);
    *out.tiles_ = std::move(tiles);
    return out;
  }
  /// Returns a tile, which may still be deferred. The index must be inside the grid.
  static const Array& tile(const BlockArray& a, const Shape& index) { return (*a.tiles_)[a.number(index)]; }
};

/// Advances to the next index of a grid in row-major order. Returns false after the last one.
inline bool next(Shape& index, const Shape& grid) {
  for (std::size_t d = grid.size(); d-- > 0;) {
    if (++index[d] < grid[d]) return true;
    index[d] = 0;
  }
  return false;
}
/// Calls f(index) for each index of a grid in row-major order.
template <class F>
void for_each_index(const Shape& grid, F&& f) {
  if (element_count(grid) == 0) return;
  Shape index(grid.size(), 0);
  do f(std::as_const(index));
  while (next(index, grid));
}

}  // namespace tessera
