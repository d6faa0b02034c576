// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/block_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "tessera/task/block_access.h"

namespace tessera {
namespace {

Shape grid_of(const Shape& shape, const Shape& tile) {
  Shape grid;
  for (std::size_t d = 0; d < shape.size(); ++d) grid.push_back((shape[d] + tile[d] - 1) / tile[d]);
  return grid;
}

Array part(const Array& a, const Shape& begin, const Shape& end) {
  Array out = a;
  for (std::size_t d = 0; d < begin.size(); ++d) out = out.slice(static_cast<int>(d), begin[d], end[d]);
  return out;
}

/// Array::fill is not sufficient, because its parameter is a double, which cannot represent all 64-bit integers.
void fill_tile(Array& tile, const ArrayOperand& value) {
  if (is_int(tile.dtype()) && dtype_size(tile.dtype()) == 8 && value.bits(tile.dtype()))
    tile.assign(Array::zeros({}, tile.dtype(), tile.device()) + value);
  else
    tile.fill(value.value());
}
void check_scalar(const char* operation, const ArrayOperand& value) {
  if (value.is_array())
    fail<ArgumentError>({.operation = operation, .wrong = "the value is an array", .remedy = "Use assign() or from()"});
}

}  // namespace

Distribution block_cyclic() {
  return [](const Shape& index, const Shape& grid, const std::vector<Device>& devices) {
    const auto n = static_cast<std::int64_t>(devices.size());
    std::int64_t p = 1;
    for (std::int64_t d = 1; d * d <= n; ++d)
      if (n % d == 0) p = d;
    const std::int64_t q = n / p, row = index.empty() ? 0 : index[0], column = index.size() < 2 ? 0 : index.back();
    if (index.size() == 1) return devices[static_cast<std::size_t>(row % n)];
    if (!grid.empty() && (p > grid.front() || q > grid.back()))
      return devices[static_cast<std::size_t>((row * grid.back() + column) % n)];
    return devices[static_cast<std::size_t>(row % p * q + column % q)];
  };
}
Distribution by_rows() {
  return [](const Shape& index, const Shape& grid, const std::vector<Device>& devices) {
    return devices[static_cast<std::size_t>(index.front()) * devices.size() / static_cast<std::size_t>(grid.front())];
  };
}
Distribution by_columns() {
  return [](const Shape& index, const Shape& grid, const std::vector<Device>& devices) {
    return devices[static_cast<std::size_t>(index.back()) * devices.size() / static_cast<std::size_t>(grid.back())];
  };
}

// --- Layout

BlockArray BlockArray::layout(Shape shape, Shape tile, DType dtype) {
  check_shape("BlockArray", shape);
  if (tile.size() != shape.size() || std::ranges::any_of(tile, [](std::int64_t n) { return n < 1; }))
    fail<ShapeError>(
        {.operation = "BlockArray",
         .with = {{"shape", to_string(shape)}, {"tile", to_string(tile)}},
         .wrong = "the tile must have one extent for each dimension of the array, and each extent must be at least 1"});
  BlockArray out;
  out.grid_ = grid_of(shape, tile), out.shape_ = std::move(shape), out.tile_ = std::move(tile), out.dtype_ = dtype;
  return out;
}

std::size_t BlockArray::number(const Shape& index) const {
  std::size_t n = 0;
  for (std::size_t d = 0; d < grid_.size(); ++d)
    n = n * static_cast<std::size_t>(grid_[d]) + static_cast<std::size_t>(index[d]);
  return n;
}
Shape BlockArray::origin_of(const Shape& index) const {
  Shape out = index;
  for (std::size_t d = 0; d < out.size(); ++d) out[d] *= tile_[d];
  return out;
}
Shape BlockArray::extent_of(const Shape& index) const {
  Shape out = index;
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = std::min(tile_[d], shape_[d] - index[d] * tile_[d]);
  return out;
}

/// Creates a block array with tiles computed by tile_at(index, origin, extent, device).
template <class F>
BlockArray BlockArray::made(Shape shape, Shape tile, DType dtype, const Scope& scope, const Distribution& distribution,
                            F&& tile_at) {
  BlockArray out = layout(std::move(shape), std::move(tile), dtype);
  if (out.size() == 0) return out;
  const Distribution place = distribution ? distribution : block_cyclic();
  for_each_index(out.grid_, [&](const Shape& index) {
    const Device device = place(index, out.grid_, scope.devices());
    const DeviceScope there(device);
    out.tiles_->push_back(tile_at(index, out.origin_of(index), out.extent_of(index), device));
  });
  return out;
}

BlockArray BlockArray::empty(Shape shape, Shape tile, DType dtype, const Scope& scope, const Distribution& by) {
  return made(std::move(shape), std::move(tile), dtype, scope, by,
              [&](const Shape&, const Shape&, const Shape& extent, Device) { return Array::empty(extent, dtype); });
}
BlockArray BlockArray::full(Shape shape, Shape tile, const ArrayOperand& value, DType dtype, const Scope& scope,
                            const Distribution& by) {
  check_scalar("full", value);
  return made(std::move(shape), std::move(tile), dtype, scope, by,
              [&](const Shape&, const Shape&, const Shape& extent, Device) {
                Array made = Array::empty(extent, dtype);
                fill_tile(made, value);
                return made;
              });
}
BlockArray BlockArray::zeros(Shape shape, Shape tile, DType dtype, const Scope& scope, const Distribution& by) {
  return full(std::move(shape), std::move(tile), 0, dtype, scope, by);
}
BlockArray BlockArray::ones(Shape shape, Shape tile, DType dtype, const Scope& scope, const Distribution& by) {
  return full(std::move(shape), std::move(tile), 1, dtype, scope, by);
}

BlockArray BlockArray::identity(std::int64_t n, Shape tile, DType dtype, const Scope& scope, const Distribution& by) {
  return made({n, n}, std::move(tile), dtype, scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent, Device) {
                const Array row = Array::arange(extent[0], static_cast<double>(origin[0]), 1, DType::i64).unsqueeze(1);
                const Array column = Array::arange(extent[1], static_cast<double>(origin[1]), 1, DType::i64);
                return (row == column).astype(dtype);
              });
}

BlockArray BlockArray::random_uniform(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope,
                                      const Distribution& by) {
  return made(shape, std::move(tile), DType::f32, scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent, Device) {
                return random_uniform_part(shape, origin, extent, seed);
              });
}
BlockArray BlockArray::random_normal(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope,
                                     const Distribution& by) {
  return made(shape, std::move(tile), DType::f32, scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent, Device) {
                return random_normal_part(shape, origin, extent, seed);
              });
}

BlockArray BlockArray::from(const Array& array, Shape tile, const Scope& scope, const Distribution& by) {
  array.eval();
  return made(array.shape(), std::move(tile), array.dtype(), scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent, Device device) {
                Shape end = origin;
                for (std::size_t d = 0; d < end.size(); ++d) end[d] += extent[d];
                const DeviceScope there(array.device());
                const Array here = part(array, origin, end).copy();
                return device == array.device() ? here : here.to(device);
              });
}

// --- Properties

Tile BlockArray::tile(const Shape& index) const {
  bool inside = index.size() == grid_.size();
  for (std::size_t d = 0; inside && d < grid_.size(); ++d) inside = index[d] >= 0 && index[d] < grid_[d];
  if (!inside)
    fail<ShapeError>({.operation = "tile",
                      .with = {{"index", to_string(index)}, {"grid", to_string(grid_)}},
                      .wrong = "the index is outside the grid"});
  const Array& tile = (*tiles_)[number(index)];
  tile.eval();
  return {index, tile};
}

std::vector<Tile> BlockArray::tiles() const {
  std::vector<Tile> all;
  for_each_index(grid_, [&](const Shape& index) { all.push_back(tile(index)); });
  return all;
}

Scope BlockArray::scope() const {
  std::vector<Device> devices;
  for (const Array& t : *tiles_)
    if (std::ranges::find(devices, t.device()) == devices.end()) devices.push_back(t.device());
  return devices.empty() ? Scope() : Scope(std::move(devices));
}

std::string BlockArray::where() const {
  std::string out = fmt::format("{} {} in tiles of {}:", to_string(shape_), dtype_name(dtype_), to_string(tile_));
  std::map<Device, std::string> by_device;
  for_each_index(grid_,
                 [&](const Shape& index) { by_device[(*tiles_)[number(index)].device()] += " " + to_string(index); });
  for (const auto& [device, list] : by_device) out += fmt::format("\n  {}:{}", to_string(device), list);
  return out;
}

// --- Copies

Array BlockArray::gather(std::optional<Device> device) const {
  const Device where = device.value_or(current_device());
  const DeviceScope there(where);
  Array out = Array::empty(shape_, dtype_);
  for (const Tile& t : tiles()) {
    const Shape origin = origin_of(t.index());
    Shape end = origin;
    for (std::size_t d = 0; d < end.size(); ++d) end[d] += t.shape()[d];
    Array to = part(out, origin, end);
    to.assign(t.array().to(where));
  }
  return out;
}

BlockArray BlockArray::to(const Scope& scope, const Distribution& by) const {
  return made(shape_, tile_, dtype_, scope, by, [&](const Shape& index, const Shape&, const Shape&, Device device) {
    const Array from = tile(index).array();
    if (from.device() != device) return from.to(device);
    return from.copy();
  });
}

BlockArray BlockArray::copy() const {
  return map([](const Array& t) { return t.copy(); }, *this);
}

BlockArray BlockArray::slice(const Shape& begin, const Shape& end) const {
  bool right = begin.size() == shape_.size() && end.size() == shape_.size();
  for (std::size_t d = 0; right && d < shape_.size(); ++d)
    right = begin[d] >= 0 && begin[d] <= end[d] && end[d] <= shape_[d];
  if (!right)
    fail<ShapeError>({.operation = "slice",
                      .with = {{"shape", to_string(shape_)}, {"begin", to_string(begin)}, {"end", to_string(end)}},
                      .wrong = "the slice exceeds the array"});
  Shape shape = end;
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] -= begin[d];
  // Assembles each tile of the result from the tiles of this array that it overlaps.
  return made(shape, tile_, dtype_, scope(), {},
              [&](const Shape&, const Shape& origin, const Shape& extent, Device device) {
                Array out = Array::empty(extent, dtype_);
                Shape low = origin, high = origin, first = origin, count = origin;
                for (std::size_t d = 0; d < low.size(); ++d) {
                  low[d] += begin[d], high[d] = low[d] + extent[d];
                  first[d] = low[d] / tile_[d], count[d] = (high[d] - 1) / tile_[d] - first[d] + 1;
                }
                for_each_index(count, [&](const Shape& at) {
                  Shape index = first;
                  for (std::size_t d = 0; d < index.size(); ++d) index[d] += at[d];
                  const Tile t = tile(index);
                  const Shape o = origin_of(index);
                  Shape from = o, to = o, out_from = o, out_to = o;
                  for (std::size_t d = 0; d < o.size(); ++d) {
                    from[d] = std::max(low[d], o[d]) - o[d], to[d] = std::min(high[d], o[d] + t.shape()[d]) - o[d];
                    out_from[d] = from[d] + o[d] - low[d], out_to[d] = to[d] + o[d] - low[d];
                  }
                  Array place = part(out, out_from, out_to);
                  const Array piece = part(t.array(), from, to);
                  place.assign(piece.device() == device ? piece : piece.to(device));
                });
                return out;
              });
}

BlockArray BlockArray::retile(Shape tile) const {
  return made(shape_, std::move(tile), dtype_, scope(), {},
              [&](const Shape&, const Shape& origin, const Shape& extent, Device device) {
                Shape end = origin;
                for (std::size_t d = 0; d < end.size(); ++d) end[d] += extent[d];
                const Array all = slice(origin, end).gather(device);
                return all;
              });
}

void BlockArray::assign(const Shape& begin, const BlockArray& value) {
  Shape end = begin;
  if (begin.size() == value.shape().size())
    for (std::size_t d = 0; d < end.size(); ++d) end[d] += value.shape()[d];
  bool right = begin.size() == shape_.size() && value.shape().size() == shape_.size();
  for (std::size_t d = 0; right && d < shape_.size(); ++d) right = begin[d] >= 0 && end[d] <= shape_[d];
  if (!right)
    fail<ShapeError>(
        {.operation = "assign",
         .with = {{"shape", to_string(shape_)}, {"begin", to_string(begin)}, {"value", to_string(value.shape())}},
         .wrong = "the value exceeds the array"});
  for (const Tile& t : tiles()) {
    const Shape o = origin_of(t.index());
    Shape from = o, to = o, value_from = o, value_to = o;
    bool meets = true;
    for (std::size_t d = 0; d < o.size(); ++d) {
      from[d] = std::max(begin[d], o[d]) - o[d], to[d] = std::min(end[d], o[d] + t.shape()[d]) - o[d];
      value_from[d] = from[d] + o[d] - begin[d], value_to[d] = to[d] + o[d] - begin[d];
      meets = meets && from[d] < to[d];
    }
    if (!meets) continue;
    Array place = part(t.array(), from, to);
    place.assign(value.slice(value_from, value_to).gather(t.device()).astype(dtype_));
  }
}

// --- Operations on each tile

void BlockArray::fill(const ArrayOperand& value) {
  check_scalar("fill", value);
  for (Array& t : *tiles_) fill_tile(t, value);
}

void BlockArray::for_each_tile(const Callback<void(Array&)>& f) {
  Region r;
  for (const Tile& t : tiles())
    r.spawn(
        {.scope = Scope(t.device()), .name = "for_each_tile"}, [f](Array& tile) { f(tile); }, inout(t));
}

std::string to_string(const BlockArray& a) {
  std::string out = to_string(a.gather());
  return out + fmt::format(" in tiles of {} on {}", to_string(a.tile_shape()), to_string(a.scope()));
}

void BlockArray::eval() const {
  for (const Array& t : *tiles_) t.eval();
}

}  // namespace tessera
