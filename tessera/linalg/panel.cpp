// SPDX-License-Identifier: Apache-2.0
#include "tessera/linalg/panel.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/linalg/matrices.h"

namespace tessera::linalg {

namespace {

/// A panel in column-major memory.
template <class T>
class Panel {
 public:
  Panel(const char* operation, const std::vector<Array>& tiles)
      : tiles_(tiles), rows_(height(tiles)), memory_(rows_ * columns()) {
    for_each_tile([&](const Array& tile, std::int64_t row) {
      MatrixReader(operation, tile).read(0, memory_.data() + row, rows_);
    });
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return tiles_[0].shape(1); }
  const host::Buffer<T>& memory() const { return memory_; }
  void write() const {
    for_each_tile([&](Array tile, std::int64_t row) {
      MatrixWriter writer({}, tile.shape(0), tile.shape(1), tile.dtype(), tile.device());
      writer.write(0, memory_.data() + row, rows_);
      tile.assign(writer.finish());
    });
  }

 private:
  static std::int64_t height(const std::vector<Array>& tiles) {
    return std::accumulate(tiles.begin(), tiles.end(), std::int64_t{0},
                           [](std::int64_t sum, const Array& tile) { return sum + tile.shape(0); });
  }
  template <class F>
  void for_each_tile(F f) const {
    std::int64_t row = 0;
    for (const Array& tile : tiles_) f(tile, row), row += tile.shape(0);
  }
  const std::vector<Array>& tiles_;
  std::int64_t rows_;
  host::Buffer<T> memory_;
};

}  // namespace

PanelPivots factorise_lu(const std::vector<Array>& tiles) {
  return with_type(tiles[0].dtype(), [&](auto zero) {
    const Panel<decltype(zero)> panel("linalg::lu", tiles);
    PanelPivots out;
    out.rows.resize(static_cast<std::size_t>(std::min(panel.rows(), panel.columns())));
    out.singular = host::own::lu(panel.rows(), panel.columns(), panel.memory(), out.rows.data());
    panel.write();
    return out;
  });
}

void exchange_rows(std::vector<std::int64_t>& order, std::int64_t begin, const PanelPivots& pivots) {
  const auto rows = std::span(order).subspan(static_cast<std::size_t>(begin));
  for (std::size_t i = 0; i < pivots.rows.size(); ++i)
    std::swap(rows[i], rows[static_cast<std::size_t>(pivots.rows[i] - 1)]);
}

void exchange_rows(const std::vector<Array>& tiles, const PanelPivots& pivots) {
  if (tiles[0].size() == 0) return;
  if (!is_built_in(tiles[0].device().backend)) {
    const Array all = concatenate(tiles, 0);
    std::vector<std::int64_t> order(static_cast<std::size_t>(all.shape(0)));
    std::iota(order.begin(), order.end(), 0);
    exchange_rows(order, 0, pivots);
    const Array exchanged = take(all, Array::from(order, Shape{all.shape(0)}, all.device()), 0);
    std::int64_t row = 0;
    for (Array tile : tiles) tile.assign(exchanged.slice(0, row, row + tile.shape(0))), row += tile.shape(0);
    return;
  }
  with_type(tiles[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t width = tiles[0].shape(1);
    std::vector<HostAccess> accesses;
    std::vector<T*> rows;
    for (const Array& tile : tiles) {
      accesses.push_back(tile.host_access());
      for (std::int64_t i = 0; i < tile.shape(0); ++i)
        rows.push_back(static_cast<T*>(accesses.back().data()) + i * tile.strides()[0]);
    }
    for (std::size_t i = 0; i < pivots.rows.size(); ++i) {
      T* const other = rows[static_cast<std::size_t>(pivots.rows[i] - 1)];
      if (other != rows[i]) std::swap_ranges(rows[i], rows[i] + width, other);
    }
  });
}

void factorise_qr(const std::vector<Array>& tiles, Array& v, Array& t) {
  with_type(tiles[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Panel<T> panel("linalg::qr", tiles);
    const std::int64_t m = panel.rows(), count = std::min(m, panel.columns()), top = tiles[0].shape(0);
    std::vector<T> tau(static_cast<std::size_t>(count));
    host::own::householder(m, panel.columns(), panel.memory(), tau.data());
    panel.write();
    const host::Buffer<T> square(count * count), factor(count * count);
    host::own::reflector_factor(m, count, 0, panel.memory(), tau.data(), square, factor);
    const auto write = [&](const Array& to, std::int64_t rows, auto&& write_part) {
      MatrixWriter writer({}, rows, count, to.dtype(), to.device());
      write_part(writer);
      to.slice(0, 0, rows).slice(1, 0, count).assign(writer.finish());
    };
    write(t, count, [&](MatrixWriter& w) { w.write_upper(0, factor.data(), count); });
    write(v, top, [&](MatrixWriter& w) {
      w.write_lower(0, panel.memory().data(), m);
      for (std::int64_t i = 0; i < count; ++i) w.template data<T>(0)[i * count + i] = 1;
    });
  });
}

}  // namespace tessera::linalg
