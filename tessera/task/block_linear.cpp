// SPDX-License-Identifier: Apache-2.0
// Operations that combine several tiles: transposes, products, factorisations and stencils.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tessera/array/functions.h"
#include "tessera/base/callback.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/packed_rhs.h"
#include "tessera/task/block_access.h"
#include "tessera/task/block_array.h"
#include "tessera/task/products.h"
#include "tessera/task/stencil_tile.h"

namespace tessera {
namespace {

void check_matrix(const char* operation, const BlockArray& a) {
  if (a.rank() != 2)
    fail<ShapeError>(
        {.operation = operation, .with = {{"shape", to_string(a.shape())}}, .wrong = "the array is not a matrix"});
}
void check_square(const char* operation, const BlockArray& a) {
  check_matrix(operation, a);
  if (a.shape()[0] != a.shape()[1])
    fail<ShapeError>(
        {.operation = operation, .with = {{"shape", to_string(a.shape())}}, .wrong = "the matrix is not square"});
  if (a.tile_shape()[0] != a.tile_shape()[1])
    fail<ShapeError>({.operation = operation,
                      .with = {{"tile", to_string(a.tile_shape())}},
                      .wrong = "the tiles are not square",
                      .remedy = "Copy the array with retile({n, n})"});
}
using On = TaskOptionsByTile;

}  // namespace

BlockArray BlockArray::transpose() const {
  const auto reversed = [](Shape s) { return std::ranges::reverse(s), s; };
  TilePlaces places{{}, ranks_ ? ranks_->shared_messages() : nullptr};
  for_each_index(reversed(grid_), [&](const Shape& index) { places.add(tile(reversed(index))); });
  return BlockArrayAccess::made(
      reversed(shape_), reversed(tile_), dtype_, std::move(places),
      [&](const Shape& index, const Shape&, const Shape&) { return tile(reversed(index)).array().transpose().copy(); });
}

// --- Products

namespace {

void check_product(const BlockArray& c, const BlockArray& a, const BlockArray& b) {
  check_matrix("matmul_into", a), check_matrix("matmul_into", b), check_matrix("matmul_into", c);
  if (a.shape()[1] != b.shape()[0] || c.shape() != Shape{a.shape()[0], b.shape()[1]})
    fail<ShapeError>({.operation = "matmul_into",
                      .with = {{"c", to_string(c.shape())}, {"a", to_string(a.shape())}, {"b", to_string(b.shape())}},
                      .wrong = "a, b and c need shapes (m, k), (k, n) and (m, n)"});
}

/// Returns true if any tile of x shares memory with a tile of y.
bool share_memory(const BlockArray& x, const BlockArray& y) {
  const auto storages = [](const BlockArray& a) {
    std::set<const Storage*> all;
    for (std::int64_t i = 0; i < a.grid()[0]; ++i)
      for (std::int64_t j = 0; j < a.grid()[1]; ++j) all.insert(a.tile(i, j).array().view().storage.get());
    return all;
  };
  const auto of_x = storages(x), of_y = storages(y);
  return std::ranges::any_of(of_x, [&](const Storage* s) { return of_y.contains(s); });
}

/// Creates one task for each product of two tiles. The tilings must match. The loop over inner tiles is the outermost
/// one, so that only few tiles of other ranks are needed at a time.
void multiply_tiles_on_ranks(Region& r, const BlockArray& c, const BlockArray& a, const BlockArray& b, double alpha,
                             double beta) {
  const On on(c);
  const std::int64_t rows = c.grid()[0], columns = c.grid()[1];
  for (std::int64_t p = 0; p < a.grid()[1]; ++p) {
    const Update how{.alpha = alpha, .beta = p == 0 ? beta : 1};
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const Tile to = c.tile(i, j);
        r.spawn(
            on(to, "multiply"), [how](const Array& x, const Array& y, Array& z) { multiply_into(z, x, y, how); },
            in(a.tile(i, p)), in(b.tile(p, j)), how.beta == 0 ? out(to) : inout(to));
      }
    for (std::int64_t i = 0; i < rows; ++i) BlockArrayAccess::release(a, i, p);
    for (std::int64_t j = 0; j < columns; ++j) BlockArrayAccess::release(b, p, j);
  }
}

/// Creates one task for each product of two tiles. The tilings must match. If many products read a tile of b, another
/// task packs that tile.
void multiply_tiles(Region& r, const BlockArray& c, const BlockArray& a, const BlockArray& b, double alpha,
                    double beta) {
  if (a.grid()[1] != 0 && (BlockArrayAccess::ranks(c) || BlockArrayAccess::ranks(a) || BlockArrayAccess::ranks(b)))
    return multiply_tiles_on_ranks(r, c, a, b, alpha, beta);
  const On on(c);
  const std::int64_t depths = a.grid()[1], columns = c.grid()[1];
  const auto along_memory = [](const Array& x) { return x.strides()[0] > 0 && x.strides()[1] == 1; };
  // Only the CPU uses packed tiles. Errors in operands are reported by the product tasks.
  const bool alike = is_float(c.dtype()) && a.dtype() == c.dtype() && b.dtype() == c.dtype();
  auto apart = [&, known = std::optional<bool>()]() mutable {  // computed only once, and only if packing may be faster
    if (!known) known = !share_memory(c, a) && !share_memory(c, b);
    return *known;
  };
  std::vector<std::optional<Task<Array>>> packed(static_cast<std::size_t>(depths * columns));
  for (std::int64_t i = 0; i < c.grid()[0]; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const Tile to = c.tile(i, j);
      if (depths == 0 && beta != 1)
        r.spawn(
            on(to, "scale"), [beta](Array& x) { x *= beta; }, inout(to));
      for (std::int64_t p = 0; p < depths; ++p) {
        const Tile left = a.tile(i, p), right = b.tile(p, j);
        const Update how{.alpha = alpha, .beta = p == 0 ? beta : 1};
        const Accessed target = how.beta == 0 ? out(to) : inout(to);
        if (c.grid()[0] >= 4 && alike &&
            ops::is_packing_worthwhile(to.device(), to.shape()[0], to.shape()[1], left.shape()[1]) &&
            along_memory(to.array()) && along_memory(left.array()) && apart()) {
          auto& ready = packed[static_cast<std::size_t>(p * columns + j)];
          if (!ready) ready = r.spawn(on(to, "pack"), ops::pack_rhs, in(right));
          r.spawn(
              on(to, "multiply"),
              [how](const Array& x, const Array& y, Array& z) { ops::multiply_packed_into(z, x, y, how); }, in(left),
              *ready, target);
        } else {
          r.spawn(
              on(to, "multiply"), [how](const Array& x, const Array& y, Array& z) { multiply_into(z, x, y, how); },
              in(left), in(right), target);
        }
      }
    }
}

}  // namespace

void matmul_into(BlockArray& c, const BlockArray& a, const BlockArray& b, double alpha, double beta) {
  check_product(c, a, b);
  const std::int64_t m = c.tile_shape()[0], n = c.tile_shape()[1], k = a.tile_shape()[1];
  if (a.tile_shape()[0] != m) return matmul_into(c, a.retile({m, k}), b, alpha, beta);
  if (b.tile_shape() != Shape{k, n}) return matmul_into(c, a, b.retile({k, n}), alpha, beta);
  Region r;
  multiply_tiles(r, c, a, b, alpha, beta);
  r.wait();
}

void matmul(Region& region, const AccessedBlocks& c, const AccessedBlocks& a, const AccessedBlocks& b) {
  check_product_modes(c.mode, a.mode, b.mode);
  check_product(c.array, a.array, b.array);
  const Shape of_a{c.array.tile_shape()[0], a.array.tile_shape()[1]},
      of_b{a.array.tile_shape()[1], c.array.tile_shape()[1]};
  if (a.array.tile_shape() != of_a || b.array.tile_shape() != of_b)
    fail<ShapeError>({.operation = "matmul of tasks",
                      .with = {{"tiles of c", to_string(c.array.tile_shape())},
                               {"of a", to_string(a.array.tile_shape())},
                               {"of b", to_string(b.array.tile_shape())}},
                      .wrong = "the tile shapes do not match",
                      .remedy = "Copy a with retile(" + to_string(of_a) + "), b with retile(" + to_string(of_b) + ")"});
  multiply_tiles(region, c.array, a.array, b.array, 1, c.mode == Access::out ? 0 : 1);
}

namespace {

/// Returns the product of a matrix and a vector. v is retiled if the lengths of its tiles differ from the widths of the
/// tiles of a.
BlockArray matrix_by_vector(const BlockArray& a, const BlockArray& v) {
  const std::int64_t m = a.tile_shape()[0], k = a.tile_shape()[1];
  if (v.tile_shape()[0] != k) return matrix_by_vector(a, v.retile({k}));
  BlockArray out = BlockArray::zeros({a.shape()[0]}, {m}, a.dtype(), a.scope());
  const On on(out);
  Region r;
  for (std::int64_t i = 0; i < a.grid()[0]; ++i)
    for (std::int64_t p = 0; p < a.grid()[1]; ++p) {
      const Tile to = out.tile(Shape{i});
      r.spawn(
          on(to, "multiply"), [](const Array& x, const Array& y, Array& z) { multiply_into(z, x, y); },
          in(a.tile(i, p)), in(v.tile(Shape{p})), inout(to));
    }
  r.wait();
  return out;
}

}  // namespace

BlockArray matmul(const BlockArray& a, const BlockArray& b) {
  check_matrix("matmul", a);
  if (b.rank() != 1) check_matrix("matmul", b);
  if (a.shape()[1] != b.shape()[0])
    fail<ShapeError>({.operation = "matmul",
                      .with = {{"left", to_string(a.shape())}, {"right", to_string(b.shape())}},
                      .wrong = "the left operand's number of columns differs from the right operand's number of rows"});
  if (b.rank() == 1) return matrix_by_vector(a, b);
  const Shape shape{a.shape()[0], b.shape()[1]}, tile{a.tile_shape()[0], b.tile_shape()[1]};
  if (a.shape()[1] == 0) return BlockArray::zeros(shape, tile, a.dtype(), a.scope());
  BlockArray c = BlockArray::empty(shape, tile, a.dtype(), a.scope());
  matmul_into(c, a, b, 1, 0);
  return c;
}

void syrk_into(BlockArray& c, const BlockArray& a, double alpha, double beta) {
  check_square("syrk_into", c), check_matrix("syrk_into", a);
  if (a.shape()[0] != c.shape()[0])
    fail<ShapeError>({.operation = "syrk_into",
                      .with = {{"c", to_string(c.shape())}, {"a", to_string(a.shape())}},
                      .wrong = "the numbers of rows differ"});
  const std::int64_t side = c.tile_shape()[0], k = a.tile_shape()[1];
  if (a.tile_shape()[0] != side) return syrk_into(c, a.retile({side, k}), alpha, beta);
  const On on(c);
  Region r;
  for (std::int64_t i = 0; i < c.grid()[0]; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      const Tile to = c.tile(i, j);
      // Multiply by beta with an empty product, which leaves elements above the diagonal unchanged.
      if (a.grid()[1] == 0)
        r.spawn(
            on(to, "scale"),
            [beta, diagonal = i == j](Array& x) {
              const Array none = Array::zeros({x.shape(0), 0}, x.dtype()),
                          other = Array::zeros({0, x.shape(1)}, x.dtype());
              multiply_into(x, none, other, {.beta = beta, .lower = diagonal});
            },
            inout(to));
      for (std::int64_t p = 0; p < a.grid()[1]; ++p)
        r.spawn(
            on(to, "update"),
            [alpha, beta = p == 0 ? beta : 1, diagonal = i == j](const Array& x, const Array& y, Array& z) {
              multiply_into(z, x, y.transpose(), {.alpha = alpha, .beta = beta, .lower = diagonal});
            },
            in(a.tile(i, p)), in(a.tile(j, p)), inout(to));
    }
  r.wait();
}

// --- Factorisations

void cholesky_into(BlockArray& a) {
  check_square("cholesky", a);
  const std::int64_t n = a.grid()[0], rows = a.tile_shape()[0];
  // The first negative pivot of each diagonal tile.
  TilePlaces diagonal_places{{}, BlockArrayAccess::places(a).messages};
  for (std::int64_t k = 0; k < n; ++k) diagonal_places.add(a.tile(k, k));
  const BlockArray failures = BlockArrayAccess::made(
      {n}, {1}, DType::i32, std::move(diagonal_places),
      [](const Shape&, const Shape&, const Shape&) { return Array::zeros({1}, DType::i32).eval(); });
  const On on(a);
  Region r;
  for (std::int64_t k = 0; k < n; ++k) {
    const Tile diagonal = a.tile(k, k);
    r.spawn(
        on(diagonal, "factor", 3), [order = k * rows](Array& t, Array& failure) { cholesky_into(t, failure, order); },
        inout(diagonal), inout(failures.tile(Shape{k})));
    for (std::int64_t i = k + 1; i < n; ++i)
      r.spawn(
          on(a.tile(i, k), "solve", 2),
          [](const Array& l, Array& t) {
            solve_triangular_into(l, t, {.side = Side::right, .triangle = Triangle::lower, .transposed = true});
          },
          in(diagonal), inout(a.tile(i, k)));
    for (std::int64_t j = k + 1; j < n; ++j) {
      r.spawn(
          on(a.tile(j, j), "update", j == k + 1 ? 2 : 1),
          [](const Array& x, Array& t) { multiply_into(t, x, x.transpose(), {.alpha = -1, .lower = true}); },
          in(a.tile(j, k)), inout(a.tile(j, j)));
      for (std::int64_t i = j + 1; i < n; ++i)
        r.spawn(
            on(a.tile(i, j), "update", j == k + 1 ? 1 : 0),
            [](const Array& x, const Array& y, Array& t) { multiply_into(t, x, y.transpose(), {.alpha = -1}); },
            in(a.tile(i, k)), in(a.tile(j, k)), inout(a.tile(i, j)));
    }
    for (std::int64_t i = k; i < n; ++i) BlockArrayAccess::release(a, i, k);
  }
  // The tasks above did not write the elements above the diagonal.
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = i; j < n; ++j)
      r.spawn(
          on(a.tile(i, j), "clear"),
          [i, j](Array& t) {
            if (i == j)
              t.assign(tril(t));
            else
              t.fill(0);
          },
          i == j ? inout(a.tile(i, j)) : out(a.tile(i, j)));
  r.wait();
  const Array all = failures.gather(Device{});
  for (std::int64_t k = 0; k < n; ++k) check_cholesky(all.slice(0, k, k + 1));
}

BlockArray cholesky(const BlockArray& a) {
  check_square("cholesky", a);
  BlockArray l = a.copy();
  cholesky_into(l);
  return l;
}

BlockArray solve_triangular(const BlockArray& t, const BlockArray& b, bool transposed) {
  check_square("solve_triangular", t), check_matrix("solve_triangular", b);
  if (t.shape()[0] != b.shape()[0])
    fail<ShapeError>({.operation = "solve_triangular",
                      .with = {{"matrix", to_string(t.shape())}, {"right side", to_string(b.shape())}},
                      .wrong = "the numbers of rows differ"});
  const std::int64_t rows = t.tile_shape()[0], n = t.grid()[0];
  BlockArray x = b.tile_shape()[0] == rows ? b.copy() : b.retile({rows, b.tile_shape()[1]});
  const On on(x);
  Region r;
  for (std::int64_t j = 0; j < x.grid()[1]; ++j)
    for (std::int64_t step = 0; step < n; ++step) {
      const std::int64_t k = transposed ? n - 1 - step : step;
      r.spawn(
          on(x.tile(k, j), "solve", 1),
          [transposed](const Array& l, Array& v) {
            solve_triangular_into(l, v, {.triangle = Triangle::lower, .transposed = transposed});
          },
          in(t.tile(k, k)), inout(x.tile(k, j)));
      for (std::int64_t rest = step + 1; rest < n; ++rest) {
        const std::int64_t i = transposed ? n - 1 - rest : rest;
        const Tile factor = transposed ? t.tile(k, i) : t.tile(i, k);
        r.spawn(
            on(x.tile(i, j), "update"),
            [transposed](const Array& l, const Array& v, Array& w) {
              multiply_into(w, transposed ? l.transpose() : l, v, {.alpha = -1});
            },
            in(factor), in(x.tile(k, j)), inout(x.tile(i, j)));
      }
    }
  r.wait();
  return x;
}

// --- Stencils

BlockArray stencil(const BlockArray& a, const Halo& halo, const Callback<Array(const Neighbours&)>& f) {
  check_matrix("stencil", a);
  if (a.size() == 0) return a.copy();
  const std::int64_t d = halo.distance, rows = a.grid()[0], columns = a.grid()[1];
  const Tile last = a.tile(rows - 1, columns - 1);
  if (d < 0 || std::min(last.shape()[0], last.shape()[1]) < d)
    fail<ShapeError>({.operation = "stencil",
                      .with = {{"distance", std::to_string(d)}, {"smallest tile", to_string(last.shape())}},
                      .wrong = "the halo is wider than the smallest tile",
                      .remedy = "Use larger tiles; see retile()"});
  BlockArray made = BlockArray::empty(a.shape(), a.tile_shape(), a.dtype(), a.scope());
  const On on(made);
  Region r;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      // The tile and its eight neighbours. A neighbour beyond the edge of the array is replaced by the tile on the
      // opposite side, or by the tile itself.
      std::vector<Accessed> around;
      std::vector<detail::StencilTile::Past> beyond;
      for (std::int64_t di = -1; di <= 1; ++di)
        for (std::int64_t dj = -1; dj <= 1; ++dj) {
          const std::int64_t p = i + di, q = j + dj;
          const std::int64_t row_past = p < 0 ? -1 : p >= rows ? 1 : 0, column_past = q < 0 ? -1 : q >= columns ? 1 : 0;
          beyond.push_back({row_past, column_past});
          const bool wrap = halo.edge == Edge::wrap;
          around.push_back(in(a.tile(wrap ? (p + rows) % rows : std::clamp<std::int64_t>(p, 0, rows - 1),
                                     wrap ? (q + columns) % columns : std::clamp<std::int64_t>(q, 0, columns - 1))));
        }
      r.spawn(
          on(made.tile(i, j), "stencil"),
          [halo, beyond, f](const std::vector<Array>& near, Array& to) {
            detail::StencilTile(halo, beyond, near).write(to, f);
          },
          around, out(made.tile(i, j)));
    }
  r.wait();
  return made;
}

}  // namespace tessera
