// SPDX-License-Identifier: Apache-2.0
// Computes a stencil on one tile. Internal.
#pragma once

#include <vector>

#include "tessera/base/callback.h"
#include "tessera/task/block_array.h"

namespace tessera::detail {

class RebasedExpression;

/// Neighbours are views of a padded tile, which has `distance` more elements on each side. If the function is
/// elementwise, the padded tile is not written. The interior is then computed directly on the tiles, and the border on
/// four strips of the padded tile.
class StencilTile {
 public:
  /// Where a neighbouring tile lies relative to the array, in rows and columns: -1 before the first tile, 1 after the
  /// last tile, otherwise 0.
  struct Past {
    std::int64_t rows = 0, columns = 0;
  };
  /// `near` contains the eight surrounding tiles and the tile itself (index 4), in row-major order. Beyond the edge of
  /// the array, it contains the tiles that replace the missing ones. `near` must outlive this object.
  StencilTile(const Halo& halo, const std::vector<Past>& beyond, const std::vector<Array>& near)
      : halo_(halo), beyond_(beyond), near_(near) {}
  void write(Array& to, const Callback<Array(const Neighbours&)>& f) const;

 private:
  /// Writes a part of the padded tile that starts at (row, column).
  void fill(Array& part, std::int64_t row, std::int64_t column) const;
  /// Returns false and writes nothing if `made` is not an elementwise function of views of `padded`, or if computing it
  /// on parts would be slower.
  bool write_parts(Array& to, const Array& padded, const Array& made) const;
  /// Computes whole rows directly on the tiles, then computes their first and last columns again.
  bool write_in_place(Array& to, const RebasedExpression& parts) const;
  /// Computes the interior on the tile, and the border on four strips of the padded tile.
  bool write_strips(Array& to, const RebasedExpression& parts) const;

  const Halo& halo_;
  const std::vector<Past>& beyond_;
  const std::vector<Array>& near_;
};

}  // namespace tessera::detail
