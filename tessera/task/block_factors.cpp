// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/block_factors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/linalg/panel.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/task/block_access.h"

namespace tessera::linalg {

namespace {

using On = TaskOptionsByTile;

void check_matrix(const char* operation, const BlockArray& a) {
  if (a.rank() != 2)
    fail<ShapeError>(
        {.operation = operation, .with = {{"shape", to_string(a.shape())}}, .wrong = "the array is not a matrix"});
  if (a.dtype() != DType::f32 && a.dtype() != DType::f64)
    fail<DtypeError>({.operation = operation,
                      .with = {{"dtype", std::string(dtype_name(a.dtype()))}},
                      .wrong = "the dtype must be f32 or f64",
                      .remedy = "Convert the block array with astype(...)"});
  if (BlockArrayAccess::ranks(a))
    fail<ArgumentError>({.operation = operation,
                         .wrong = "the block array is distributed over ranks",
                         .remedy = "Copy it to this process with BlockArray::from(a.gather(), tile)"});
}
void check_factorised(const char* operation, const BlockArray& a) {
  check_matrix(operation, a);
  if (a.tile_shape()[0] != a.tile_shape()[1])
    fail<ShapeError>({.operation = operation,
                      .with = {{"tile", to_string(a.tile_shape())}},
                      .wrong = "the tiles are not square",
                      .remedy = "Copy the block array with retile({n, n})"});
}
void check_right_side(const char* operation, const BlockArray& a, const BlockArray& b) {
  check_matrix(operation, b);
  if (a.shape()[0] != b.shape()[0])
    fail<ShapeError>({.operation = operation,
                      .with = {{"a", to_string(a.shape())}, {"b", to_string(b.shape())}},
                      .wrong = "the numbers of rows differ"});
  if (a.dtype() != b.dtype())
    fail<DtypeError>({.operation = operation,
                      .with = {{"a", std::string(dtype_name(a.dtype()))}, {"b", std::string(dtype_name(b.dtype()))}},
                      .wrong = "the dtypes differ",
                      .remedy = "Convert one with astype(...)"});
}

/// A copy of b whose tiles are as high as those of `a`.
BlockArray right_side(const BlockArray& a, const BlockArray& b) {
  const std::int64_t rows = a.tile_shape()[0];
  return b.tile_shape()[0] == rows ? b.copy() : b.retile({rows, b.tile_shape()[1]});
}

/// Tiles (begin, j), (begin + 1, j), ... of a column.
std::vector<Accessed> column_from(const BlockArray& a, std::int64_t begin, std::int64_t j, Access mode) {
  std::vector<Accessed> tiles;
  for (std::int64_t i = begin; i < a.grid()[0]; ++i) tiles.push_back(a.tile(i, j).accessed(mode));
  return tiles;
}

/// Sets the elements below (or above) the diagonal to zero, and the diagonal to 1 if `unit` is true.
void keep_triangle(BlockArray& a, Triangle triangle, bool unit = false) {
  const On on(a);
  const bool lower = triangle == Triangle::lower;
  Region r;
  for (std::int64_t i = 0; i < a.grid()[0]; ++i)
    for (std::int64_t j = 0; j < a.grid()[1]; ++j) {
      const Tile t = a.tile(i, j);
      if (i == j)
        r.spawn(
            on(t, "clear"),
            [lower, unit](Array& x) {
              Array kept = lower ? tril(x, unit ? -1 : 0) : triu(x);
              if (unit) kept = kept + Array::eye(x.shape(0), x.shape(1), 0, x.dtype());
              x.assign(std::move(kept));
            },
            inout(t));
      else if (lower == (j > i))
        r.spawn(
            on(t, "clear"), [](Array& x) { x.fill(0); }, out(t));
    }
  r.wait();
}

/// Replaces x by the solution of t x = b. The tiles of t are square and as high as those of x.
void substitute(Region& r, const BlockArray& t, const BlockArray& x, const TriangularSystem& system) {
  const On on(x);
  const std::int64_t n = t.grid()[0];
  const bool transposed = system.transposed, downwards = (system.triangle == Triangle::lower) != transposed;
  for (std::int64_t j = 0; j < x.grid()[1]; ++j)
    for (std::int64_t step = 0; step < n; ++step) {
      const std::int64_t k = downwards ? step : n - 1 - step;
      r.spawn(
          on(x.tile(k, j), "solve", 1),
          [system](const Array& diagonal, Array& v) { solve_triangular_into(diagonal, v, system); }, in(t.tile(k, k)),
          inout(x.tile(k, j)));
      for (std::int64_t rest = step + 1; rest < n; ++rest) {
        const std::int64_t i = downwards ? rest : n - 1 - rest;
        r.spawn(
            on(x.tile(i, j), "update"),
            [transposed](const Array& factor, const Array& v, Array& w) {
              multiply_into(w, transposed ? factor.transpose() : factor, v, {.alpha = -1});
            },
            in(transposed ? t.tile(k, i) : t.tile(i, k)), in(x.tile(k, j)), inout(x.tile(i, j)));
      }
    }
}

// --- LU

/// L and U in the place of a matrix, and the exchanges of rows of each panel.
struct LuFactors {
  BlockArray both;
  std::vector<PanelPivots> pivots;

  /// The number (from 1) of the first column without a nonzero pivot, or 0.
  std::int64_t singular() const {
    for (std::size_t k = 0; k < pivots.size(); ++k)
      if (pivots[k].singular != 0) return static_cast<std::int64_t>(k) * both.tile_shape()[1] + pivots[k].singular;
    return 0;
  }
  std::vector<std::int64_t> rows() const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(both.shape()[0]));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t k = 0; k < pivots.size(); ++k)
      exchange_rows(order, static_cast<std::int64_t>(k) * both.tile_shape()[0], pivots[k]);
    return order;
  }
};

LuFactors factorise(const BlockArray& a) {
  LuFactors f{a.copy(), {}};
  const BlockArray& both = f.both;
  const std::int64_t rows = both.grid()[0], columns = both.grid()[1];
  const On on(both);
  std::vector<Task<PanelPivots>> found;
  Region r;
  for (std::int64_t k = 0; k < std::min(rows, columns); ++k) {
    const Tile diagonal = both.tile(k, k);
    found.push_back(r.spawn(on(diagonal, "factor", 3), factorise_lu, column_from(both, k, k, Access::inout)));
    for (std::int64_t j = 0; j < columns; ++j) {
      if (j == k) continue;
      const int priority = j == k + 1 ? 2 : j > k ? 1 : 0;
      r.spawn(
          on(both.tile(k, j), "exchange", priority),
          [](const PanelPivots& pivots, const std::vector<Array>& tiles) { exchange_rows(tiles, pivots); },
          found.back(), column_from(both, k, j, Access::inout));
      if (j < k) continue;
      r.spawn(
          on(both.tile(k, j), "solve", priority),
          [](const Array& l, Array& t) {
            const std::int64_t n = t.shape(0);  // a tile of the last row can be lower than the diagonal tile is wide
            solve_triangular_into(l.slice(1, 0, n), t, {.unit_diagonal = true});
          },
          in(diagonal), inout(both.tile(k, j)));
      for (std::int64_t i = k + 1; i < rows; ++i)
        r.spawn(
            on(both.tile(i, j), "update", priority),
            [](const Array& l, const Array& u, Array& t) { multiply_into(t, l, u, {.alpha = -1}); },
            in(both.tile(i, k)), in(both.tile(k, j)), inout(both.tile(i, j)));
    }
  }
  r.wait();
  for (const Task<PanelPivots>& panel : found) f.pivots.push_back(panel.fetch());
  return f;
}

// --- QR

/// A product of reflections: R in the upper triangle of `both`, the vectors V below it, the tops of V with ones on
/// their diagonals, and the factors T. The reflections of panel k are I - V T V^T.
struct Reflections {
  BlockArray both, tops, factors;
};

Reflections reflect(const BlockArray& a);

/// Multiplies the columns of c, from column `first` of its tiles on, by the reflections of panel k, or by their
/// transpose.
void apply_panel(Region& r, const Reflections& q, std::int64_t k, const BlockArray& c, std::int64_t first,
                 bool transposed) {
  const On on(c);
  const std::int64_t count = std::min(q.both.shape()[0] - k * q.both.tile_shape()[0], q.both.tile(k, k).shape()[1]);
  for (std::int64_t j = first; j < c.grid()[1]; ++j)
    r.spawn(
        on(c.tile(k, j), "reflect", j == first ? 2 : 1),
        [transposed, count](const Array& top, const Array& factor, const std::vector<Array>& below,
                            const std::vector<Array>& tiles) {
          const Array v = top.slice(0, 0, tiles[0].shape(0)).slice(1, 0, count);
          const Array t = factor.slice(0, 0, count).slice(1, 0, count);
          Array product = Array::empty({count, tiles[0].shape(1)}, v.dtype(), v.device());
          multiply_into(product, v.transpose(), tiles[0], {.beta = 0});
          for (std::size_t i = 0; i < below.size(); ++i) multiply_into(product, below[i].transpose(), tiles[i + 1]);
          const Array scaled = matmul(transposed ? t.transpose() : t, product);
          for (std::size_t i = 0; i < tiles.size(); ++i) {
            Array tile = tiles[i];
            multiply_into(tile, i == 0 ? v : below[i - 1], scaled, {.alpha = -1});
          }
        },
        in(q.tops.tile(k, 0)), in(q.factors.tile(k, 0)), column_from(q.both, k + 1, k, Access::in),
        column_from(c, k, j, Access::inout));
}

Reflections reflect(const BlockArray& a) {
  const std::int64_t side = a.tile_shape()[0], panels = std::min(a.grid()[0], a.grid()[1]);
  TilePlaces places;
  for (std::int64_t k = 0; k < panels; ++k) places.add(a.tile(k, k));
  const auto square_tiles = [&] {
    return BlockArrayAccess::made(
        {panels * side, side}, {side, side}, a.dtype(), places,
        [&](const Shape&, const Shape&, const Shape& extent) { return Array::zeros(extent, a.dtype()).eval(); });
  };
  Reflections q{a.copy(), square_tiles(), square_tiles()};
  const On on(q.both);
  Region r;
  for (std::int64_t k = 0; k < panels; ++k) {
    r.spawn(on(q.both.tile(k, k), "factor", 3), factorise_qr, column_from(q.both, k, k, Access::inout),
            out(q.tops.tile(k, 0)), out(q.factors.tile(k, 0)));
    apply_panel(r, q, k, q.both, k + 1, true);
  }
  r.wait();
  return q;
}

/// Replaces c by Q c, or by the transpose of Q times c. c has as many rows as the factorised matrix.
void apply(const Reflections& q, const BlockArray& c, bool transposed) {
  const std::int64_t panels = q.tops.grid()[0];
  Region r;
  for (std::int64_t step = 0; step < panels; ++step)
    apply_panel(r, q, transposed ? step : panels - 1 - step, c, 0, transposed);
  r.wait();
}

/// Copies R, which is k x n, for k = min(m, n).
BlockArray upper_factor(const Reflections& q) {
  const std::int64_t n = q.both.shape()[1];
  BlockArray out = q.both.slice({0, 0}, {std::min(q.both.shape()[0], n), n});
  keep_triangle(out, Triangle::upper);
  return out;
}

/// Throws unless the square R shows full rank. `size` is the larger extent of the matrix that was factorised.
void check_full_rank(const BlockArray& r, std::int64_t size) {
  double largest = 0, smallest = std::numeric_limits<double>::infinity();
  std::int64_t column = 0;
  for (std::int64_t k = 0; k < r.grid()[0]; ++k) {
    const auto values = diag(r.tile(k, k).array()).to(Device{}).astype(DType::f64).to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = std::abs(values[i]);
      largest = std::max(largest, value);
      if (!(value >= smallest)) smallest = value, column = k * r.tile_shape()[0] + static_cast<std::int64_t>(i);
    }
  }
  const double epsilon = r.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                 : static_cast<double>(std::numeric_limits<float>::epsilon());
  if (r.size() != 0 && !(smallest > static_cast<double>(size) * epsilon * largest))
    fail<ArgumentError>({.operation = "linalg::lstsq",
                         .with = {{"column", std::to_string(column)}},
                         .wrong = "the matrix does not have full rank: this column depends on those before it",
                         .remedy = "Use linalg::lstsq of an array, a.gather(), which returns the rank"});
}

}  // namespace

BlockLu lu(const BlockArray& a) {
  check_factorised("linalg::lu", a);
  const LuFactors f = factorise(a);
  const std::int64_t m = a.shape()[0], n = a.shape()[1], k = std::min(m, n);
  BlockLu out{Array::from(f.rows(), Shape{m}), f.both.slice({0, 0}, {m, k}), f.both.slice({0, 0}, {k, n})};
  keep_triangle(out.l, Triangle::lower, true);
  keep_triangle(out.u, Triangle::upper);
  return out;
}

BlockArray solve(const BlockArray& a, const BlockArray& b) {
  check_factorised("linalg::solve", a), check_right_side("linalg::solve", a, b);
  if (a.shape()[0] != a.shape()[1])
    fail<ShapeError>({.operation = "linalg::solve",
                      .with = {{"a", to_string(a.shape())}},
                      .wrong = "the matrix is not square",
                      .remedy = "Use linalg::lstsq"});
  const LuFactors f = factorise(a);
  if (const std::int64_t column = f.singular(); column != 0)
    fail<ArgumentError>({.operation = "linalg::solve",
                         .with = {{"pivot column", std::to_string(column - 1)}},
                         .wrong = "the matrix is singular: no row has a nonzero pivot in this column"});
  BlockArray x = right_side(a, b);
  Region r;
  for (std::size_t k = 0; k < f.pivots.size(); ++k)
    for (std::int64_t j = 0; j < x.grid()[1]; ++j)
      r.spawn(
          On(x)(x.tile(static_cast<std::int64_t>(k), j), "exchange"),
          [pivots = f.pivots[k]](const std::vector<Array>& tiles) { exchange_rows(tiles, pivots); },
          column_from(x, static_cast<std::int64_t>(k), j, Access::inout));
  substitute(r, f.both, x, {.unit_diagonal = true});
  substitute(r, f.both, x, {.triangle = Triangle::upper});
  r.wait();
  return x;
}

BlockQr qr(const BlockArray& a) {
  check_factorised("linalg::qr", a);
  const Reflections reflections = reflect(a);
  const std::int64_t m = a.shape()[0], k = std::min(m, a.shape()[1]);
  BlockQr out{BlockArray::zeros({m, k}, a.tile_shape(), a.dtype(), a.scope()), upper_factor(reflections)};
  for (std::int64_t i = 0; i < std::min(out.q.grid()[0], out.q.grid()[1]); ++i) {
    Array tile = out.q.tile(i, i).array();
    tile.assign(Array::eye(tile.shape(0), tile.shape(1), 0, tile.dtype(), tile.device()));
  }
  apply(reflections, out.q, false);
  return out;
}

BlockArray lstsq(const BlockArray& a, const BlockArray& b) {
  check_factorised("linalg::lstsq", a), check_right_side("linalg::lstsq", a, b);
  const std::int64_t m = a.shape()[0], n = a.shape()[1], columns = b.shape()[1];
  const bool tall = m >= n;  // otherwise a^T = Q R, and x = Q R^-T b
  const Reflections q = reflect(tall ? a : a.transpose());
  const BlockArray r = upper_factor(q);
  check_full_rank(r, std::max(m, n));
  BlockArray x = right_side(a, b);
  if (tall) {
    apply(q, x, true);
    x = x.slice({0, 0}, {n, columns});
  }
  Region region;
  substitute(region, r, x, {.triangle = Triangle::upper, .transposed = !tall});
  region.wait();
  if (tall) return x;
  BlockArray padded = BlockArray::zeros({n, columns}, x.tile_shape(), x.dtype(), x.scope());
  padded.assign({0, 0}, x);
  apply(q, padded, false);
  return padded;
}

}  // namespace tessera::linalg
