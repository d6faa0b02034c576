// SPDX-License-Identifier: Apache-2.0
// Reductions of block arrays. Each tile is reduced on its device, then the results are combined in row-major order.
#include <algorithm>
#include <functional>

#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/task/block_access.h"
#include "tessera/task/block_array.h"

namespace tessera {
namespace {

/// A reduction of arrays, with the operation that combines the results of two tiles.
struct Reduction {
  const char* name;
  Array (*reduce)(Array, std::vector<int>, bool);
  Array (*combine)(const Array&, const Array&);
};
constexpr Reduction sums{"sum", sum, [](const Array& a, const Array& b) { return a + b; }},
    means{"mean", sum, sums.combine},
    greatest{"max", max, [](const Array& a, const Array& b) { return maximum(a, b); }},
    least{"min", min, [](const Array& a, const Array& b) { return minimum(a, b); }},
    some{"any", any, [](const Array& a, const Array& b) { return a | b; }},
    every{"all", all, [](const Array& a, const Array& b) { return a & b; }};

/// The dtype of a reduction's result.
DType dtype_of(const Reduction& by, DType of) { return by.reduce(Array::zeros({1}, of), {}, false).dtype(); }

/// Reduces all elements. Each tile is reduced on its device, then the results are combined.
Array reduced(const BlockArray& a, const Reduction& by) {
  if (a.size() == 0) return by.reduce(Array::zeros(a.shape(), a.dtype()), {}, false);
  const Device here = current_device();
  std::vector<Array> parts;
  if (BlockArrayAccess::ranks(a)) {
    const std::vector<Tile> tiles = a.tiles();
    const auto count = static_cast<std::int64_t>(tiles.size());
    const Array all = BlockArrayAccess::made({count}, {1}, dtype_of(by, a.dtype()), BlockArrayAccess::places(a),
                                             [&](const Shape& index, const Shape&, const Shape&) {
                                               const Tile& t = tiles[static_cast<std::size_t>(index[0])];
                                               return by.reduce(t.array(), {}, false).reshape({1});
                                             })
                          .gather(here);
    for (std::int64_t i = 0; i < count; ++i) parts.push_back(all.select(0, i));
  } else {
    for (const Tile& t : a.tiles()) {
      const DeviceScope there(t.device());
      parts.push_back(by.reduce(t.array(), {}, false).eval());
    }
  }
  Array total;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Array part = parts[i].device() == here ? parts[i] : parts[i].to(here);
    total = i == 0 ? part : by.combine(total, part);
  }
  return total;
}

/// Reduces one axis of an array over ranks. The result's tiles are where the first tiles along the axis are.
BlockArray along_on_ranks(const BlockArray& a, std::size_t axis, const Reduction& by) {
  Shape shape = a.shape(), tile = a.tile_shape(), grid = a.grid();
  shape[axis] = grid[axis], tile[axis] = grid[axis] = 1;
  const DType dtype = dtype_of(by, a.dtype());
  const BlockArray parts = BlockArrayAccess::made(
      shape, tile, dtype, BlockArrayAccess::places(a), [&](const Shape& index, const Shape&, const Shape&) {
        return by.reduce(a.tile(index).array(), {static_cast<int>(axis)}, true);
      });
  TilePlaces places{{}, BlockArrayAccess::ranks(a)->shared_messages()};
  for_each_index(grid, [&](const Shape& index) { places.add(a.tile(index)); });
  shape[axis] = 1;
  const BlockArray out = BlockArrayAccess::empty(shape, tile, dtype, std::move(places));
  const TaskOptionsByTile options(out);
  Region r;
  for (const Tile& t : out.tiles()) {
    std::vector<Accessed> along;
    Shape at = t.index();
    for (; at[axis] < a.grid()[axis]; ++at[axis]) along.push_back(in(parts.tile(at)));
    r.spawn(
        options(t, by.name),
        [by](const std::vector<Array>& of, Array& to) {
          Array total = of[0];
          for (std::size_t i = 1; i < of.size(); ++i) total = by.combine(total, of[i]);
          to.assign(total);
        },
        std::move(along), tessera::out(t));
  }
  r.wait();
  return out;
}

/// Reduces one axis. The result has extent 1 on this axis.
BlockArray along(const BlockArray& a, std::size_t axis, const Reduction& by) {
  if (BlockArrayAccess::ranks(a) && a.size() != 0) return along_on_ranks(a, axis, by);
  const auto d = static_cast<int>(axis);
  Shape shape = a.shape(), tile = a.tile_shape(), grid = a.grid();
  shape[axis] = tile[axis] = grid[axis] = 1;
  std::vector<Array> tiles;
  for_each_index(grid, [&](const Shape& index) {
    Array total;
    if (a.shape()[axis] == 0) {
      Shape extent = shape;
      for (std::size_t e = 0; e < extent.size(); ++e) extent[e] = std::min(tile[e], shape[e] - index[e] * tile[e]);
      extent[axis] = 0;
      // The reduction of an empty array; some reductions throw.
      total = by.reduce(Array::zeros(extent, a.dtype()), {d}, true);
    }
    Device device;
    for (std::int64_t i = 0; i < a.grid()[axis]; ++i) {
      Shape at = index;
      at[axis] = i;
      const Array t = a.tile(at).array();
      if (i == 0) device = t.device();
      const DeviceScope there(t.device());
      const Array part = by.reduce(t, {d}, true);
      total = i == 0 ? part : by.combine(total, part.device() == device ? part : part.to(device));
    }
    tiles.push_back(total);
  });
  const DType dtype = tiles.empty() ? dtype_of(by, a.dtype()) : tiles.front().dtype();
  return BlockArrayAccess::of(std::move(shape), std::move(tile), dtype, std::move(tiles));
}

std::vector<std::size_t> axes_of(const BlockArray& a, const Axes& axes, const char* name) {
  std::vector<std::size_t> all;
  for (const int axis : axes.list()) {
    all.push_back(static_cast<std::size_t>(normalise_axis(name, axis, a.shape().size())));
    if (std::ranges::count(all, all.back()) > 1)
      fail<ShapeError>(
          {.operation = name, .with = {{"axis", std::to_string(axis)}}, .wrong = "the axis is listed twice"});
  }
  for (std::size_t d = 0; all.size() < a.shape().size() && axes.list().empty(); ++d) all.push_back(d);
  return all;
}
/// Reduces several axes. Each reduced axis has extent 1, so the indices of the other axes remain valid.
BlockArray along(BlockArray a, const std::vector<std::size_t>& axes, const Reduction& by) {
  for (const std::size_t axis : axes) a = along(a, axis, by);
  return a;
}
/// Removes the given axes, which must have extent 1.
BlockArray squeezed(const BlockArray& a, std::vector<std::size_t> axes) {
  std::ranges::sort(axes, std::greater());
  const auto without = [&](Shape s) {
    std::vector<std::int64_t> rest = s;
    for (const std::size_t axis : axes) rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(axis));
    return Shape(rest);
  };
  const auto& ranks = BlockArrayAccess::ranks(a);
  std::vector<Array> tiles;
  for_each_index(a.grid(), [&](const Shape& index) {
    Array t = BlockArrayAccess::tile(a, index);
    if (!ranks || ranks->here(tiles.size()))
      for (const std::size_t axis : axes) t = t.squeeze(static_cast<int>(axis));
    tiles.push_back(std::move(t));
  });
  return BlockArrayAccess::of(without(a.shape()), without(a.tile_shape()), a.dtype(), std::move(tiles),
                              ranks ? BlockArrayAccess::places(a) : TilePlaces());
}

BlockArray reduced(const BlockArray& a, const Axes& axes, bool keep, const Reduction& by) {
  const auto over = axes_of(a, axes, by.name);
  const BlockArray kept = along(a, over, by);
  return keep ? kept : squeezed(kept, over);
}

bool is_narrow(DType t) { return t == DType::f16 || t == DType::bf16; }
/// As for arrays, sums of 16-bit floats are accumulated in f32 and rounded once.
BlockArray as_summed(const BlockArray& a) { return is_narrow(a.dtype()) ? a.astype(DType::f32) : a; }

/// The dtype of the mean, and the array of which the sum is computed.
struct Mean {
  DType dtype;
  BlockArray of;
};
Mean mean_of(const BlockArray& a, std::vector<Device> devices) {
  if (a.size() == 0)
    fail<ShapeError>({.operation = "mean", .with = {{"shape", to_string(a.shape())}}, .wrong = "the array is empty"});
  if (is_float(a.dtype())) return {a.dtype(), as_summed(a)};
  bool f64 = std::ranges::all_of(devices, [](Device d) { return device_info(d).can.f64; });
  if (const auto& ranks = BlockArrayAccess::ranks(a)) {
    const bool mine = f64;
    for (int r = 0; r < ranks->messages().size(); ++r) {
      std::vector<std::byte> theirs{std::byte{mine}};
      ranks->messages().broadcast(theirs, r);
      f64 = f64 && theirs[0] != std::byte{};
    }
  }
  const DType t = f64 ? DType::f64 : DType::f32;
  return {t, dtype_size(a.dtype()) == 8 ? a.astype(t) : a};  // a sum of 64-bit integers could overflow
}

}  // namespace

Array sum(const BlockArray& a) {
  const Array total = reduced(as_summed(a), sums);
  return is_narrow(a.dtype()) ? total.astype(a.dtype()) : total;
}
Array mean(const BlockArray& a) {
  std::vector<Device> devices = a.scope().devices();
  devices.push_back(current_device());
  const Mean m = mean_of(a, std::move(devices));
  return detail::mean_of_sum(reduced(m.of, means), a.size(), m.dtype);
}
Array max(const BlockArray& a) { return reduced(a, greatest); }
Array min(const BlockArray& a) { return reduced(a, least); }
Array any(const BlockArray& a) { return reduced(a, some); }
Array all(const BlockArray& a) { return reduced(a, every); }

BlockArray sum(const BlockArray& a, const Axes& axes, bool keep) {
  const BlockArray total = reduced(as_summed(a), axes, keep, sums);
  return is_narrow(a.dtype()) ? total.astype(a.dtype()) : total;
}
BlockArray mean(const BlockArray& a, const Axes& axes, bool keep) {
  axes_of(a, axes, "mean");  // throws if an axis is invalid
  const Mean m = mean_of(a, a.scope().devices());
  const BlockArray total = reduced(m.of, axes, keep, means);
  const std::int64_t count = a.size() / total.size();
  return map([&](const Array& t) { return detail::mean_of_sum(t, count, m.dtype); }, total);
}
BlockArray max(const BlockArray& a, const Axes& axes, bool keep) { return reduced(a, axes, keep, greatest); }
BlockArray min(const BlockArray& a, const Axes& axes, bool keep) { return reduced(a, axes, keep, least); }
BlockArray any(const BlockArray& a, const Axes& axes, bool keep) { return reduced(a, axes, keep, some); }
BlockArray all(const BlockArray& a, const Axes& axes, bool keep) { return reduced(a, axes, keep, every); }

}  // namespace tessera
