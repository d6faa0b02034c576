// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/block_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "tessera/array/host_bytes.h"
#include "tessera/array/npy.h"
#include "tessera/array/npy_source.h"
#include "tessera/base/os/atomic_file.h"
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

TilePlaces BlockArrayAccess::place(const BlockArray& layout, const Scope& scope, const Distribution& distribution) {
  TilePlaces out;
  if (layout.size() == 0) return out;
  const Distribution by = distribution ? distribution : block_cyclic();
  if (!scope.ranks()) {
    for_each_index(layout.grid_, [&](const Shape& index) {
      out.places.push_back({0, by(index, layout.grid_, scope.devices())});
    });
    return out;
  }
  // Distributions get devices that are numbered over all ranks.
  out.messages = scope.ranks()->messages;
  const std::vector<std::pair<int, Device>> places = scope.ranks()->list();
  std::vector<Device> numbered;
  std::map<Backend, int> count;
  for (const auto& [rank, device] : places) numbered.push_back({device.backend, count[device.backend]++});
  for_each_index(layout.grid_, [&](const Shape& index) {
    const Device chosen = by(index, layout.grid_, numbered);
    const auto at = std::ranges::find(numbered, chosen);
    if (at == numbered.end())
      fail<DeviceError>({.operation = "BlockArray",
                         .with = {{"tile", to_string(index)}, {"device", to_string(chosen)}},
                         .wrong = "the distribution did not choose one of the devices that it was given"});
    const auto& [rank, device] = places[static_cast<std::size_t>(at - numbered.begin())];
    out.places.push_back({rank, device});
  });
  return out;
}

TaskOptionsByTile::TaskOptionsByTile(const BlockArray& a) {
  std::map<Backend, std::vector<Device>> alike;
  for (const Device d : a.scope().devices()) alike[d.backend].push_back(d);
  for (auto& [backend, devices] : alike)
    if (!is_built_in(backend)) alike_.emplace(backend, Scope(std::move(devices)));
}

namespace {

/// Creates a block array with tiles computed by tile_at(index, origin, extent).
template <class F>
BlockArray made(Shape shape, Shape tile, DType dtype, const Scope& scope, const Distribution& distribution,
                F&& tile_at) {
  TilePlaces places = BlockArrayAccess::place(BlockArrayAccess::layout(shape, tile, dtype), scope, distribution);
  return BlockArrayAccess::made(std::move(shape), std::move(tile), dtype, std::move(places), tile_at);
}

}  // namespace

BlockArray BlockArray::empty(Shape shape, Shape tile, DType dtype, const Scope& scope, const Distribution& by) {
  return made(std::move(shape), std::move(tile), dtype, scope, by,
              [&](const Shape&, const Shape&, const Shape& extent) { return Array::empty(extent, dtype); });
}
BlockArray BlockArray::full(Shape shape, Shape tile, const ArrayOperand& value, DType dtype, const Scope& scope,
                            const Distribution& by) {
  check_scalar("full", value);
  return made(std::move(shape), std::move(tile), dtype, scope, by,
              [&](const Shape&, const Shape&, const Shape& extent) {
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
  return made({n, n}, std::move(tile), dtype, scope, by, [&](const Shape&, const Shape& origin, const Shape& extent) {
    const Array row = Array::arange(extent[0], static_cast<double>(origin[0]), 1, DType::i64).unsqueeze(1);
    const Array column = Array::arange(extent[1], static_cast<double>(origin[1]), 1, DType::i64);
    return (row == column).astype(dtype);
  });
}

BlockArray BlockArray::random_uniform(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope,
                                      const Distribution& by) {
  return made(shape, std::move(tile), DType::f32, scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent) {
                return random_uniform_part(shape, origin, extent, seed);
              });
}
BlockArray BlockArray::random_normal(Shape shape, Shape tile, std::uint64_t seed, const Scope& scope,
                                     const Distribution& by) {
  return made(shape, std::move(tile), DType::f32, scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent) {
                return random_normal_part(shape, origin, extent, seed);
              });
}

BlockArray BlockArray::from(const Array& array, Shape tile, const Scope& scope, const Distribution& by) {
  array.eval();
  return made(array.shape(), std::move(tile), array.dtype(), scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent) {
                Shape end = origin;
                for (std::size_t d = 0; d < end.size(); ++d) end[d] += extent[d];
                const Device device = current_device();
                const DeviceScope there(array.device());
                const Array here = part(array, origin, end).copy();
                return device == array.device() ? here : here.to(device);
              });
}

BlockArray BlockArray::load_npy(const std::string& path, Shape tile, const Scope& scope, const Distribution& by) {
  const NpyFile file = NpyFile::open(path);
  return made(file.shape(), std::move(tile), file.dtype(), scope, by,
              [&](const Shape&, const Shape& origin, const Shape& extent) { return file.load(origin, extent); });
}

// --- Properties

Tile BlockArray::tile(const Shape& index) const {
  bool inside = index.size() == grid_.size();
  for (std::size_t d = 0; inside && d < grid_.size(); ++d) inside = index[d] >= 0 && index[d] < grid_[d];
  if (!inside)
    fail<ShapeError>({.operation = "tile",
                      .with = {{"index", to_string(index)}, {"grid", to_string(grid_)}},
                      .wrong = "the index is outside the grid"});
  const std::size_t n = number(index);
  (*tiles_)[n].eval();
  return {index, tiles_, {ranks_, static_cast<std::uint32_t>(n)}};
}

std::vector<Tile> BlockArray::tiles() const {
  std::vector<Tile> all;
  for_each_index(grid_, [&](const Shape& index) { all.push_back(tile(index)); });
  return all;
}

Scope BlockArray::scope() const {
  if (ranks_) return ranks_->scope();
  std::vector<Device> devices;
  for (const Array& t : *tiles_)
    if (std::ranges::find(devices, t.device()) == devices.end()) devices.push_back(t.device());
  return devices.empty() ? Scope() : Scope(std::move(devices));
}

std::string BlockArray::where() const {
  std::string out = fmt::format("{} {} in tiles of {}:", to_string(shape_), dtype_name(dtype_), to_string(tile_));
  std::map<std::pair<int, Device>, std::string> by_place;
  for_each_index(grid_, [&](const Shape& index) {
    const Tile t = tile(index);
    by_place[{t.owner(), t.device()}] += " " + to_string(index);
  });
  for (const auto& [place, list] : by_place)
    out +=
        fmt::format("\n  {}{}:{}", ranks_ ? fmt::format("rank {} ", place.first) : "", to_string(place.second), list);
  return out;
}

// --- Copies

namespace {

/// Copies boxes of one block array to tiles of another: at once, or by tasks if one of them is distributed over ranks.
class BoxCopies {
 public:
  BoxCopies(const BlockArray& from, const BlockArray& to) : from_(from) {
    if (!BlockArrayAccess::ranks(from) && !BlockArrayAccess::ranks(to)) return;
    options_.emplace(to), region_.emplace();
  }
  /// Copies the box that begins at `begin` to the elements of a tile that begin at `to_begin`.
  void copy(const Tile& to, const Shape& to_begin, const Shape& extent, const Shape& begin) {
    const Shape& tile = from_.tile_shape();
    Shape first = begin, count = begin;
    for (std::size_t d = 0; d < begin.size(); ++d)
      first[d] = begin[d] / tile[d], count[d] = (begin[d] + extent[d] - 1) / tile[d] - first[d] + 1;
    const bool whole = extent == to.shape() && element_count(count) == 1;
    for_each_index(count, [&](const Shape& at) {
      Shape index = first;
      for (std::size_t d = 0; d < index.size(); ++d) index[d] += at[d];
      const Tile t = from_.tile(index);
      const Shape origin = BlockArrayAccess::origin(from_, index);
      Shape low = begin, high = begin, to_low = begin, to_high = begin;
      for (std::size_t d = 0; d < low.size(); ++d) {
        low[d] = std::max(begin[d], origin[d]) - origin[d];
        high[d] = std::min(begin[d] + extent[d], origin[d] + t.shape()[d]) - origin[d];
        to_low[d] = low[d] + origin[d] - begin[d] + to_begin[d], to_high[d] = high[d] - low[d] + to_low[d];
      }
      const auto write = [low, high, to_low, to_high](const Array& x, Array& y) {
        const Array piece = part(x, low, high);
        part(y, to_low, to_high).assign(piece.to(y.device()).astype(y.dtype()));
      };
      if (region_) return void(region_->spawn((*options_)(to, "copy"), write, in(t), whole ? out(to) : inout(to)));
      const DeviceScope there(to.device());
      Array target = to.array();
      write(t.array(), target);
    });
  }
  void wait() {
    if (region_) region_->wait();
  }

 private:
  const BlockArray& from_;
  std::optional<TaskOptionsByTile> options_;
  std::optional<Region> region_;
};

}  // namespace

Array BlockArray::gather(std::optional<Device> device) const {
  const Device where = device.value_or(current_device());
  const DeviceScope there(where);
  Array out = Array::empty(shape_, dtype_);
  if (ranks_) {
    Region r;
    for (const Tile& t : tiles()) {
      const Shape origin = origin_of(t.index());
      Shape end = origin;
      for (std::size_t d = 0; d < end.size(); ++d) end[d] += t.shape()[d];
      const Array to = part(out, origin, end);
      r.spawn(
          {.scope = Scope(where), .name = "gather"}, [](const Array& x, Array& y) { y.assign(x); }, in(t),
          tessera::out(to));
    }
    r.wait();
    return out;
  }
  for (const Tile& t : tiles()) {
    const Shape origin = origin_of(t.index());
    Shape end = origin;
    for (std::size_t d = 0; d < end.size(); ++d) end[d] += t.shape()[d];
    Array to = part(out, origin, end);
    to.assign(t.array().to(where));
  }
  return out;
}

void BlockArray::save_npy(const std::string& path) const {
  // If rank 0 cannot write, it still takes part in the remaining exchanges, and then tells the other ranks.
  std::exception_ptr error;
  std::vector<std::byte> text;
  std::optional<os::AtomicFile> file;
  const auto write = [&](auto&& f) {
    if ((ranks_ && ranks_->messages().rank() != 0) || error) return;
    try {
      f();
    } catch (const std::exception& e) {
      error = std::current_exception();
      const auto bytes = std::as_bytes(std::span(std::string_view(e.what())));
      text.assign(bytes.begin(), bytes.end());
    }
  };
  write([&] {
    file.emplace(path);
    file->write(detail::npy_header(dtype_, shape_));
  });
  const std::int64_t rows = shape_.empty() ? 1 : shape_[0], step = shape_.empty() ? 1 : tile_[0];
  for (std::int64_t row = 0; row < rows; row += step) {
    Shape begin(shape_.size(), 0), end = shape_;
    if (!shape_.empty()) begin[0] = row, end[0] = std::min(row + step, rows);
    const Array strip = (shape_.empty() ? *this : slice(begin, end)).gather(Device{Backend::cpu, 0});
    write([&] {
      std::string bytes;
      detail::append_bytes(bytes, strip);
      file->write(bytes);
    });
  }
  write([&] { file->commit(); });
  if (ranks_) ranks_->messages().broadcast(text, 0);
  if (error) std::rethrow_exception(error);
  if (!text.empty())
    fail<ArgumentError>({.operation = "save_npy",
                         .with = {{"file", path}},
                         .wrong = "rank 0 cannot write the file: " +
                                  std::string(reinterpret_cast<const char*>(text.data()), text.size())});
}

BlockArray BlockArray::to(const Scope& scope, const Distribution& by) const {
  if (!ranks_ && !scope.ranks())
    return made(shape_, tile_, dtype_, scope, by, [&](const Shape& index, const Shape&, const Shape&) {
      const Array from = tile(index).array();
      return from.device() != current_device() ? from.to(current_device()) : from.copy();
    });
  BlockArray out = empty(shape_, tile_, dtype_, scope, by);
  const TaskOptionsByTile options(out);
  Region r;
  for (const Tile& t : out.tiles())
    r.spawn(
        options(t, "copy"), [](const Array& x, Array& y) { y.assign(x); }, in(tile(t.index())), tessera::out(t));
  r.wait();
  return out;
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
  BlockArray out = empty(shape, tile_, dtype_, scope());
  BoxCopies copies(*this, out);
  for (const Tile& t : out.tiles()) {
    Shape from = out.origin_of(t.index());
    for (std::size_t d = 0; d < from.size(); ++d) from[d] += begin[d];
    copies.copy(t, Shape(from.size(), 0), t.shape(), from);
  }
  copies.wait();
  return out;
}

BlockArray BlockArray::retile(Shape tile) const {
  BlockArray out = empty(shape_, std::move(tile), dtype_, scope());
  BoxCopies copies(*this, out);
  for (const Tile& t : out.tiles()) copies.copy(t, Shape(shape_.size(), 0), t.shape(), out.origin_of(t.index()));
  copies.wait();
  return out;
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
  if (value.size() == 0) return;
  const BlockArray from = value.copy();  // it may share memory with this array
  BoxCopies copies(from, *this);
  for (const Tile& t : tiles()) {
    const Shape o = origin_of(t.index());
    Shape to_begin = o, extent = o, from_begin = o;
    bool meets = true;
    for (std::size_t d = 0; d < o.size(); ++d) {
      const std::int64_t low = std::max(begin[d], o[d]), high = std::min(end[d], o[d] + t.shape()[d]);
      to_begin[d] = low - o[d], extent[d] = high - low, from_begin[d] = low - begin[d];
      meets = meets && low < high;
    }
    if (meets) copies.copy(t, to_begin, extent, from_begin);
  }
  copies.wait();
}

// --- Operations on each tile

void BlockArray::fill(const ArrayOperand& value) {
  check_scalar("fill", value);
  std::size_t n = 0;
  for (Array& t : *tiles_)
    if (detail::RankTile{ranks_, static_cast<std::uint32_t>(n++)}.here()) fill_tile(t, value);
  if (ranks_) ranks_->all_written();
}

void BlockArray::for_each_tile(const Callback<void(Array&)>& f) {
  Region r;
  for (const Tile& t : tiles())
    r.spawn(
        {.scope = t.here() ? Scope(t.device()) : Scope(), .name = "for_each_tile"}, [f](Array& tile) { f(tile); },
        inout(t));
}

void BlockArray::release() const {
  for (std::size_t n = 0; ranks_ && n < tiles_->size(); ++n) ranks_->release(n);
}

std::string to_string(const BlockArray& a) {
  std::string out = to_string(a.gather());
  return out + fmt::format(" in tiles of {} on {}", to_string(a.tile_shape()), to_string(a.scope()));
}

void BlockArray::eval() const {
  for (const Array& t : *tiles_) t.eval();
}

}  // namespace tessera
