// SPDX-License-Identifier: Apache-2.0
// Golub and Van Loan, "Matrix Computations", 4th ed., 4.2.9 (block outer product Cholesky) and 3.1.4 (block
// substitution): what is solved is taken out of all that remains at once, so that the updates of a step are
// independent.
#include "tessera/ops/tiled.h"

namespace tessera::ops {

void cholesky_tiles(TiledMatrix& a, Array& failure) {
  std::int64_t order = 0;
  for (std::int64_t k = 0; k < a.rows; ++k) {
    cholesky_into(a.at(k, k), failure, order);
    order += a.at(k, k).shape(0);
    for (std::int64_t i = k + 1; i < a.rows; ++i)
      solve_triangular_into(a.at(k, k), a.at(i, k), {.side = Side::right, .transposed = true});
    for (std::int64_t i = k + 1; i < a.rows; ++i)
      for (std::int64_t j = k + 1; j <= i; ++j)
        multiply_into(a.at(i, j), a.at(i, k), a.at(j, k).transpose(),
                      {.alpha = -1, .part = i == j ? Part::lower : Part::all});
  }
}

void solve_triangular_tiles(const TiledMatrix& t, TiledMatrix& b, const TriangularSystem& system) {
  const std::int64_t n = t.rows;
  const bool right = system.side == Side::right, lower = (system.triangle == Triangle::lower) != system.transposed;
  // The matrix as it stands in the equations.
  const auto factor = [&](std::int64_t row, std::int64_t column) {
    return system.transposed ? t.at(column, row).transpose() : t.at(row, column);
  };
  // The first unknowns to be found are those whose equations have no others.
  const bool forward = lower != right;
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t k = forward ? step : n - 1 - step;
    const std::int64_t begin = forward ? k + 1 : 0, end = forward ? n : k;
    for (std::int64_t j = 0; j < (right ? b.rows : b.columns); ++j) {
      Array& x = right ? b.at(j, k) : b.at(k, j);
      solve_triangular_into(t.at(k, k), x, system);
      for (std::int64_t i = begin; i < end; ++i)
        if (right)
          multiply_into(b.at(j, i), x, factor(k, i), {.alpha = -1});
        else
          multiply_into(b.at(i, j), factor(i, k), x, {.alpha = -1});
    }
  }
}

}  // namespace tessera::ops
