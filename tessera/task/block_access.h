// SPDX-License-Identifier: Apache-2.0
// Block arrays from tiles that algorithms have computed, and their tiles as they are. Internal.
#pragma once

#include <utility>
#include <vector>

#include "tessera/task/block_array.h"

namespace tessera {

struct BlockArrayAccess {
  /// Of tiles that others have computed.
  static BlockArray of(Shape shape, Shape tile, DType dtype, std::vector<Array> tiles) {
    BlockArray out = BlockArray::layout(std::move(shape), std::move(tile), dtype);
    *out.tiles_ = std::move(tiles);
    return out;
  }
  /// A tile that may be deferred yet; the index is one of the grid.
  static const Array& tile(const BlockArray& a, const Shape& index) { return (*a.tiles_)[a.number(index)]; }
};

/// The next index of a grid, row by row; false after the last.
inline bool next(Shape& index, const Shape& grid) {
  for (std::size_t d = grid.size(); d-- > 0;) {
    if (++index[d] < grid[d]) return true;
    index[d] = 0;
  }
  return false;
}
/// f(index) for each index of a grid, row by row.
template <class F>
void for_each_index(const Shape& grid, F&& f) {
  if (element_count(grid) == 0) return;
  Shape index(grid.size(), 0);
  do f(std::as_const(index));
  while (next(index, grid));
}

}  // namespace tessera
