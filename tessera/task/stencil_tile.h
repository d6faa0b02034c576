// SPDX-License-Identifier: Apache-2.0
// A stencil's work on one tile. Internal.
#pragma once

#include <vector>

#include "tessera/task/block_array.h"

namespace tessera::detail {

class RebasedExpression;

/// Neighbours are views of a padded tile: the tile with `distance` more on each side. Elementwise functions of them
/// never make it be written: they are computed over the tiles themselves, or, along the border, over four strips of the
/// padded tile.
class StencilTile {
 public:
  /// How many rows and columns of tiles past the array's edge, -1 to 1.
  struct Past {
    std::int64_t rows = 0, columns = 0;
  };
  /// `near`: the tile, fifth, and the eight around it, row by row; beyond the edge those that stand in for them.
  /// References, to what lives as long as this.
  StencilTile(const Halo& halo, const std::vector<Past>& beyond, const std::vector<Array>& near)
      : halo_(halo), beyond_(beyond), near_(near) {}
  void write(Array& to, const std::function<Array(const Neighbours&)>& f) const;

 private:
  /// Writes the padded tile's elements from (row, column) on.
  void fill(Array& part, std::int64_t row, std::int64_t column) const;
  /// False, and nothing is written, if `made` is no elementwise function of views of `padded`, or not worth it.
  bool write_parts(Array& to, const Array& padded, const Array& made) const;
  /// Over nothing but the tiles: whole rows, whose first and last columns are then written again.
  bool write_in_place(Array& to, const RebasedExpression& parts) const;
  /// Away from the border over the tile, and along it over four strips of the padded tile.
  bool write_strips(Array& to, const RebasedExpression& parts) const;

  const Halo& halo_;
  const std::vector<Past>& beyond_;
  const std::vector<Array>& near_;
};

}  // namespace tessera::detail
