// SPDX-License-Identifier: Apache-2.0
// Computes a stencil on one tile. Internal.
#pragma once

#include <vector>

#include "tessera/base/callback.h"
#include "tessera/task/block_array.h"

namespace tessera::detail {

class RebasedExpression;

/// Neighbours are views of a padded tile: the tile with `distance` more elements on each side. For elementwise
/// functions the padded tile is not written: they are computed on the tiles themselves, or, along the border, on four
/// strips of the padded tile.
class StencilTile {
 public:
  /// How many tiles beyond the array's edge, in rows and columns: -1 to 1.
  struct Past {
    std::int64_t rows = 0, columns = 0;
  };
  /// `near`: the eight surrounding tiles and the tile itself (index 4), in row-major order; beyond the edge, the tiles
  /// that replace them. Must outlive this object.
  StencilTile(const Halo& halo, const std::vector<Past>& beyond, const std::vector<Array>& near)
      : halo_(halo), beyond_(beyond), near_(near) {}
  void write(Array& to, const Callback<Array(const Neighbours&)>& f) const;

 private:
  /// Writes the padded tile's elements, starting at (row, column).
  void fill(Array& part, std::int64_t row, std::int64_t column) const;
  /// Returns false and writes nothing if `made` is not an elementwise function of views of `padded`, or if it would not
  /// pay.
  bool write_parts(Array& to, const Array& padded, const Array& made) const;
  /// Computes whole rows directly on the tiles, then rewrites their first and last columns.
  bool write_in_place(Array& to, const RebasedExpression& parts) const;
  /// Computes the interior on the tile, and the border on four strips of the padded tile.
  bool write_strips(Array& to, const RebasedExpression& parts) const;

  const Halo& halo_;
  const std::vector<Past>& beyond_;
  const std::vector<Array>& near_;
};

}  // namespace tessera::detail
