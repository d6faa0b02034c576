// SPDX-License-Identifier: Apache-2.0
// Reductions of block arrays: of each tile where it is, then over the tiles in the order of the grid.
#include <algorithm>

#include "tessera/array/functions.h"
#include "tessera/task/block_access.h"
#include "tessera/task/block_array.h"

namespace tessera {
namespace {

using Reduce = Array (*)(Array, std::vector<int>, bool);
using Combine = Array (*)(const Array&, const Array&);

/// All elements: of each tile where it is, then one after the other.
Array reduced(const BlockArray& a, const char* name, Reduce reduce, Combine combine) {
  if (a.size() == 0 && name[0] == 'm')
    fail<ShapeError>({.asked = name, .with = {{"shape", to_string(a.shape())}}, .wrong = "the array is empty"});
  const Device here = current_device();
  std::vector<Array> parts;
  for (const Tile& t : a.tiles()) {
    const DeviceScope there(t.device());
    parts.push_back(reduce(t.array(), {}, false).eval());
  }
  if (parts.empty()) return Array::zeros({}, a.dtype());
  Array total;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Array part = parts[i].device() == here ? parts[i] : parts[i].to(here);
    total = i == 0 ? part : combine(total, part);
  }
  return total;
}

Array plus(const Array& a, const Array& b) { return a + b; }
Array larger(const Array& a, const Array& b) { return maximum(a, b); }
Array smaller(const Array& a, const Array& b) { return minimum(a, b); }

}  // namespace

Array sum(const BlockArray& a) { return reduced(a, "sum", tessera::sum, plus); }
Array max(const BlockArray& a) { return reduced(a, "max", tessera::max, larger); }
Array min(const BlockArray& a) { return reduced(a, "min", tessera::min, smaller); }
Array mean(const BlockArray& a) {
  if (a.size() == 0)
    fail<ShapeError>({.asked = "mean", .with = {{"shape", to_string(a.shape())}}, .wrong = "the array is empty"});
  return sum(a) / static_cast<double>(a.size());
}

namespace {

Shape emptied(Shape shape, std::size_t axis) {
  shape[axis] = 0;
  return shape;
}

BlockArray along(const BlockArray& a, int axis, const char* name, Reduce reduce, Combine combine) {
  const auto d = static_cast<std::size_t>(normalise_axis(name, axis, a.shape().size()));
  Shape shape = a.shape(), tile = a.tile_shape(), grid = a.grid();
  shape[d] = tile[d] = grid[d] = 1;
  std::vector<Array> tiles;
  Shape index(grid.size(), 0);
  for (std::int64_t n = element_count(grid); n > 0; --n) {
    Array total;
    Device device;
    if (a.shape()[d] == 0) {
      Shape extent = shape;
      for (std::size_t e = 0; e < extent.size(); ++e) extent[e] = std::min(tile[e], shape[e] - index[e] * tile[e]);
      total = reduce(Array::zeros(emptied(extent, d), a.dtype()), {static_cast<int>(d)}, true);  // an error of some
    }
    for (std::int64_t i = 0; i < a.grid()[d]; ++i) {
      Shape at = index;
      at[d] = i;
      const Array t = a.tile(at).array();
      if (i == 0) device = t.device();
      const DeviceScope there(t.device());
      const Array part = reduce(t, {static_cast<int>(d)}, true);
      if (i == 0)
        total = part;
      else
        total = combine(total, part.device() == device ? part : part.to(device));
    }
    tiles.push_back(total);
    for (std::size_t e = grid.size(); e-- > 0;) {
      if (++index[e] < grid[e]) break;
      index[e] = 0;
    }
  }
  const DType dtype = tiles.empty() ? a.dtype() : tiles.front().dtype();
  return BlockArrayAccess::of(std::move(shape), std::move(tile), dtype, std::move(tiles));
}

}  // namespace

BlockArray sum(const BlockArray& a, int axis) { return along(a, axis, "sum", tessera::sum, plus); }
BlockArray max(const BlockArray& a, int axis) { return along(a, axis, "max", tessera::max, larger); }
BlockArray min(const BlockArray& a, int axis) { return along(a, axis, "min", tessera::min, smaller); }

namespace {

/// Axis after axis: each stays with extent 1, so that the others keep their places.
BlockArray along(const BlockArray& a, const std::vector<int>& axes, const char* name, Reduce reduce, Combine combine) {
  std::vector<int> all;
  for (const int axis : axes) {
    all.push_back(normalise_axis(name, axis, a.shape().size()));
    if (std::ranges::count(all, all.back()) > 1)
      fail<ShapeError>({.asked = name, .with = {{"axis", std::to_string(axis)}}, .wrong = "the axis is named twice"});
  }
  BlockArray out = a;
  for (const int axis : all) out = along(out, axis, name, reduce, combine);
  return out;
}

}  // namespace

BlockArray sum(const BlockArray& a, const std::vector<int>& axes) { return along(a, axes, "sum", tessera::sum, plus); }
BlockArray max(const BlockArray& a, const std::vector<int>& axes) {
  return along(a, axes, "max", tessera::max, larger);
}
BlockArray min(const BlockArray& a, const std::vector<int>& axes) {
  return along(a, axes, "min", tessera::min, smaller);
}
BlockArray mean(const BlockArray& a, const std::vector<int>& axes) {
  const BlockArray total = along(a, axes, "mean", tessera::sum, plus);
  if (a.size() == 0)
    fail<ShapeError>({.asked = "mean", .with = {{"shape", to_string(a.shape())}}, .wrong = "the array is empty"});
  return total / static_cast<double>(a.size() / total.size());
}
BlockArray mean(const BlockArray& a, int axis) { return mean(a, std::vector<int>{axis}); }

}  // namespace tessera
