// SPDX-License-Identifier: Apache-2.0
// Factorisations and solves of a matrix that is given as tiles, as loops over tiles: what block arrays do, one
// operation after the other. Each operation names what it reads and what it writes. Inside ops/ and above it, not
// installed.
#pragma once

#include <vector>

#include "tessera/ops/linear_algebra.h"

namespace tessera::ops {

/// Tiles by rows. Those of a row have its height, those of a column its width: arrays of their own, or parts of one.
struct TiledMatrix {
  std::int64_t rows = 0, columns = 0;  ///< of tiles
  std::vector<Array> tiles;
  Array& at(std::int64_t row, std::int64_t column) { return tiles[static_cast<std::size_t>(row * columns + column)]; }
  const Array& at(std::int64_t row, std::int64_t column) const {
    return tiles[static_cast<std::size_t>(row * columns + column)];
  }
};

/// a = l l^T in the tiles on and below the diagonal, which are square there; the others are not touched. `failure` as
/// cholesky_into has it.
void cholesky_tiles(TiledMatrix& a, Array& failure);
/// x of t x = b, or of x t = b, in b's tiles.
void solve_triangular_tiles(const TiledMatrix& t, TiledMatrix& b, const TriangularSystem& system = {});

}  // namespace tessera::ops
