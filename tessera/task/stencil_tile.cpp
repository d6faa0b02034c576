// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/stencil_tile.h"

#include <algorithm>
#include <cmath>

#include "tessera/array/rebased_expression.h"
#include "tessera/array/source.h"
#include "tessera/task/task_storage.h"

namespace tessera {

Array Neighbours::operator()(std::int64_t rows, std::int64_t columns) const {
  const std::int64_t d = distance_, height = padded_.shape(0) - 2 * d, width = padded_.shape(1) - 2 * d;
  if (std::max(std::abs(rows), std::abs(columns)) > d)
    fail<ShapeError>({.operation = "neighbour",
                      .with = {{"rows", std::to_string(rows)},
                               {"columns", std::to_string(columns)},
                               {"distance", std::to_string(d)}},
                      .wrong = "the neighbour is outside the halo",
                      .remedy = "Increase Halo::distance"});
  return padded_.slice(0, d + rows, d + rows + height).slice(1, d + columns, d + columns + width);
}

namespace detail {

void StencilTile::fill(Array& part, std::int64_t row, std::int64_t column) const {
  const std::int64_t d = halo_.distance, height = near_[4].shape(0), width = near_[4].shape(1);
  struct Span {
    std::int64_t begin, end;
  };
  const auto span = [d](std::int64_t side, std::int64_t extent) {
    return side < 0 ? Span{0, d} : side > 0 ? Span{d + extent, 2 * d + extent} : Span{d, d + extent};
  };
  for (std::size_t n = 0; n < 9; ++n) {
    const auto di = static_cast<std::int64_t>(n / 3) - 1, dj = static_cast<std::int64_t>(n % 3) - 1;
    const Span whole[] = {span(di, height), span(dj, width)};
    const Span rows{std::max(whole[0].begin, row), std::min(whole[0].end, row + part.shape(0))};
    const Span columns{std::max(whole[1].begin, column), std::min(whole[1].end, column + part.shape(1))};
    if (rows.begin >= rows.end || columns.begin >= columns.end) continue;
    Array place =
        part.slice(0, rows.begin - row, rows.end - row).slice(1, columns.begin - column, columns.end - column);
    const auto [row_past, column_past] = beyond_[n];
    if (halo_.edge == Edge::pad && (row_past != 0 || column_past != 0)) {
      place.fill(halo_.value);
      continue;
    }
    // Returns the part of the neighbouring tile that borders this tile. With Edge::clamp beyond the edge of the array,
    // this is a single row or column.
    const auto take = [&](const Array& t, int axis, std::int64_t side, std::int64_t past, Span of, Span wanted) {
      const std::int64_t extent = t.shape(axis);
      if (halo_.edge == Edge::clamp && side != 0 && past != 0) {
        const std::int64_t edge = past < 0 ? 0 : extent - 1;
        return t.slice(axis, edge, edge + 1);  // broadcast by assign()
      }
      const std::int64_t first = (side < 0 ? extent - d : 0) - of.begin;
      return t.slice(axis, first + wanted.begin, first + wanted.end);
    };
    place.assign(take(take(near_[n], 0, di, row_past, whole[0], rows), 1, dj, column_past, whole[1], columns));
  }
}

bool StencilTile::write_parts(Array& to, const Array& padded, const Array& made) const {
  const auto takes = [&](const Array& a) {
    return !a.pending() && !a.has_history() && a.device() == made.device() && a.dtype() == padded.dtype() &&
           a.strides() == contiguous_strides(a.shape()) && !a.source()->memory()->exposed();
  };
  if (made.shape() != to.shape() || !takes(to) || !std::ranges::all_of(near_, takes)) return false;
  const auto parts = RebasedExpression::of(made, padded);
  return parts && (write_in_place(to, *parts) || write_strips(to, *parts));
}

bool StencilTile::write_in_place(Array& to, const RebasedExpression& parts) const {
  const std::int64_t d = halo_.distance, height = to.shape(0), width = to.shape(1);
  // Each column and row of the halo needs its own launches, which are cheap only on a CPU.
  if (d > 2 || height < 16 * d || width < 16 * d || !is_built_in(to.device().backend)) return false;
  if (halo_.edge == Edge::pad)
    for (const Past& p : beyond_)
      if (p.rows != 0 || p.columns != 0) return false;

  // Computes the range of rows in which neighbours beyond the left and right border are still inside the tile's memory.
  // They are read from the row above or below, and overwritten later.
  std::int64_t first = d, last = height - d;
  bool left = false, right = false;
  for (const auto [row, column] : parts.places()) {
    if (column < d) left = true, first = std::max(first, d - row + 1);
    if (column > d) right = true, last = std::min(last, height - (row - d) - 1);
  }
  const std::shared_ptr<Storage> memory = to.view_for_writing().storage;
  std::vector<StridedView> views(parts.places().size());
  const auto side_of = [](std::int64_t at, std::int64_t extent) { return at < 0 ? -1 : at >= extent ? 1 : 0; };
  const auto write = [&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
    for (std::size_t i = 0; i < views.size(); ++i) {
      const std::int64_t r = row + parts.places()[i].row - d, c = column + parts.places()[i].column - d;
      // Whole rows are read from this tile, even if they start to the left or right of it.
      const std::int64_t di = side_of(r, height), dj = columns == width ? 0 : side_of(c, width);
      const auto n = static_cast<std::size_t>((di + 1) * 3 + dj + 1);
      const Array& t = near_[n];
      const auto along = [&](int axis, std::int64_t side, std::int64_t past, std::int64_t at, std::int64_t extent) {
        const std::int64_t stride = axis == 0 ? t.shape(1) : 1;
        if (halo_.edge == Edge::clamp && side != 0 && past != 0)
          return std::pair(past < 0 ? 0 : (t.shape(axis) - 1) * stride, std::int64_t{0});
        return std::pair((side < 0 ? t.shape(axis) + at : side > 0 ? at - extent : at) * stride, stride);
      };
      const auto [from_row, row_stride] = along(0, di, beyond_[n].rows, r, height);
      const auto [from_column, column_stride] = along(1, dj, beyond_[n].columns, c, width);
      views[i] = {t.source()->memory(), t.dtype(), {row_stride, column_stride}, t.offset() + from_row + from_column};
    }
    parts.write({memory, to.dtype(), to.strides(), to.offset() + row * width + column}, {rows, columns}, views);
  };
  const auto copy_neighbours = [&](std::int64_t row, std::int64_t rows) {
    for (std::int64_t c = 0; c < d; ++c) {
      if (left) write(row, c, rows, 1);
      if (right) write(row, width - 1 - c, rows, 1);
    }
  };
  const auto row_of_border = [&](std::int64_t row) {
    const std::int64_t from = left ? d : 0, to_column = right ? width - d : width;
    write(row, from, 1, to_column - from);
    copy_neighbours(row, 1);
  };
  for (std::int64_t row = 0; row < first; ++row) row_of_border(row);
  // Processes bands of rows that are still in the cache when their border columns are written.
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(dtype_size(to.dtype())),
                     band = std::max<std::int64_t>(16, (1 << 20) / row_bytes);
  for (std::int64_t row = first; row < last; row += band) {
    const std::int64_t rows = std::min(band, last - row);
    write(row, 0, rows, width);
    copy_neighbours(row, rows);
  }
  for (std::int64_t row = last; row < height; ++row) row_of_border(row);
  return true;
}

bool StencilTile::write_strips(Array& to, const RebasedExpression& parts) const {
  const std::int64_t d = halo_.distance, height = to.shape(0), width = to.shape(1);
  const auto worth = [&](std::int64_t side) { return 8 * (d * width + side * height) <= height * width; };
  // The left and right strips consist of whole cache lines, so that no cache line is written twice.
  const std::int64_t line = static_cast<std::int64_t>(64 / dtype_size(to.dtype()));
  std::int64_t side = (d + line - 1) / line * line;
  if (width % line != 0 || !worth(side)) side = d;
  if (!worth(side)) return false;
  const std::shared_ptr<Storage> memory = to.view_for_writing().storage;
  // `from` contains the elements of the padded tile, starting at (from_row, from_column).
  const auto write = [&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns,
                         const Array& from, std::int64_t from_row, std::int64_t from_column) {
    const std::int64_t pitch = from.shape(1);
    std::vector<StridedView> views;
    for (const auto& place : parts.places())
      views.push_back({from.source()->memory(),
                       from.dtype(),
                       {pitch, 1},
                       from.offset() + (row + place.row - from_row) * pitch + column + place.column - from_column});
    parts.write({memory, to.dtype(), to.strides(), to.offset() + row * width + column}, {rows, columns}, views);
  };
  write(d, side, height - 2 * d, width - 2 * side, near_[4], d, d);
  if (d == 0) return true;
  const auto strip = [&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
    Array from = Array::empty({rows + 2 * d, columns + 2 * d}, near_[4].dtype());
    fill(from, row, column);
    from.eval();
    write(row, column, rows, columns, from, row, column);
  };
  strip(0, 0, d, width), strip(height - d, 0, d, width);
  strip(d, 0, height - 2 * d, side), strip(d, width - side, height - 2 * d, side);
  return true;
}

void StencilTile::write(Array& to, const Callback<Array(const Neighbours&)>& f) const {
  const std::int64_t d = halo_.distance;
  const Array padded = Array::empty({to.shape(0) + 2 * d, to.shape(1) + 2 * d}, to.dtype());
  const std::shared_ptr<Storage> memory = padded.source()->memory();
  TaskStorage& lazy = TaskStorage::of(*memory);
  lazy.set_lazy_fill([&] {
    Array all = padded;
    fill(all, 0, 0);
  });
  const long mine = memory.use_count();
  const std::uint64_t writes = memory->writes();
  // If f has stored some of the neighbours, compute them now. The lazy fill function refers to local variables, so it
  // cannot be called later.
  const auto settle = [&] {
    if (memory.use_count() == mine && padded.source().use_count() == 1) return;
    try {
      lazy.fill();
    } catch (...) {
      lazy.set_lazy_fill([] {
        fail<Error>({.operation = "read of a neighbour kept by a stencil's function",
                     .wrong = "it was not computed because the stencil failed",
                     .remedy = "See the stencil's error"});
      });
      throw;
    }
  };
  try {
    Array made = f(Neighbours(padded, d));
    if (memory->writes() != writes || !write_parts(to, padded, made)) to.assign(std::move(made));
  } catch (...) {
    settle();
    throw;
  }
  settle();
}

}  // namespace detail
}  // namespace tessera
