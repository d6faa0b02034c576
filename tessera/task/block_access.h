// SPDX-License-Identifier: Apache-2.0
// Creates block arrays from computed tiles, and accesses tiles without evaluating them. Internal.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "tessera/task/block_array.h"

namespace tessera {

/// Advances to the next index of a grid in row-major order. Returns false after the last one.
inline bool next(Shape& index, const Shape& grid) {
  for (std::size_t d = grid.size(); d-- > 0;) {
    if (++index[d] < grid[d]) return true;
    index[d] = 0;
  }
  return false;
}
/// Calls f(index) for each index of a grid in row-major order.
template <class F>
void for_each_index(const Shape& grid, F&& f) {
  if (element_count(grid) == 0) return;
  Shape index(grid.size(), 0);
  do f(std::as_const(index));
  while (next(index, grid));
}

/// Where the tiles of a block array are, in row-major order.
struct TilePlaces {
  std::vector<detail::RankTiles::Place> places;
  std::shared_ptr<detail::RankMessages> messages = {};  ///< null: in this process

  void add(const Tile& t) { places.push_back({t.owner(), t.device()}); }
  bool here(std::size_t tile) const { return !messages || places[tile].owner == messages->rank(); }
};

struct BlockArrayAccess {
  static BlockArray layout(Shape shape, Shape tile, DType dtype) {
    return BlockArray::layout(std::move(shape), std::move(tile), dtype);
  }
  /// Creates a block array from tiles that were already computed.
  static BlockArray of(Shape shape, Shape tile, DType dtype, std::vector<Array> tiles) {
    BlockArray out = BlockArray::layout(std::move(shape), std::move(tile), dtype);
    *out.tiles_ = std::move(tiles);
    return out;
  }
  /// Like of(). `tiles` has empty arrays for tiles of other ranks.
  static BlockArray of(Shape shape, Shape tile, DType dtype, std::vector<Array> tiles, TilePlaces places) {
    BlockArray out = of(std::move(shape), std::move(tile), dtype, std::move(tiles));
    if (places.messages)
      out.ranks_ = std::make_shared<detail::RankTiles>(std::move(places.messages), dtype, out.shape_, out.tile_,
                                                       std::move(places.places));
    return out;
  }
  /// Returns a tile, which may still be deferred. The index must be inside the grid.
  static const Array& tile(const BlockArray& a, const Shape& index) { return (*a.tiles_)[a.number(index)]; }
  /// Returns where a tile is. Does not evaluate it.
  static detail::RankTiles::Place place_of(const BlockArray& a, const Shape& index) {
    const std::size_t n = a.number(index);
    if (a.ranks_) return {a.ranks_->owner(n), a.ranks_->device(n)};
    return {0, (*a.tiles_)[n].device()};
  }
  /// Null in this process.
  static const std::shared_ptr<detail::RankTiles>& ranks(const BlockArray& a) { return a.ranks_; }
  static TilePlaces places(const BlockArray& a) {
    TilePlaces all;
    if (!a.ranks_) {
      for (const Array& t : *a.tiles_) all.places.push_back({0, t.device()});
      return all;
    }
    return {a.ranks_->places(), a.ranks_->shared_messages()};
  }
  /// Places the tiles of an array on the devices of a scope.
  static TilePlaces place(const BlockArray& layout, const Scope& scope, const Distribution& distribution);
  /// Creates a block array. tile_at(index, origin, extent) computes a tile of this rank on its device.
  template <class F>
  static BlockArray made(Shape shape, Shape tile, DType dtype, TilePlaces places, F&& tile_at) {
    const BlockArray layout = BlockArray::layout(shape, tile, dtype);
    std::vector<Array> tiles;
    std::size_t n = 0;
    for_each_index(layout.grid_, [&](const Shape& index) {
      if (!places.here(n)) return ++n, tiles.emplace_back(), void();
      const DeviceScope there(places.places[n++].device);
      tiles.push_back(tile_at(index, layout.origin_of(index), layout.extent_of(index)));
      if (places.messages && !tiles.back().pending()) tiles.back() = tiles.back().as_contiguous();  // to be sent
    });
    return of(std::move(shape), std::move(tile), dtype, std::move(tiles), std::move(places));
  }
  /// Creates an uninitialised block array.
  static BlockArray empty(Shape shape, Shape tile, DType dtype, TilePlaces places) {
    return made(std::move(shape), std::move(tile), dtype, std::move(places),
                [&](const Shape&, const Shape&, const Shape& extent) { return Array::empty(extent, dtype); });
  }
  static Shape origin(const BlockArray& a, const Shape& index) { return a.origin_of(index); }
  /// Drops copies of a tile on other ranks.
  static void release(const BlockArray& a, std::int64_t i, std::int64_t j) {
    if (a.ranks_) a.ranks_->release(a.number({i, j}));
  }
};

/// Creates options for tasks that write tiles of an array. The tasks run on the tile's device, or on another device of
/// the array with the same backend if they finish earlier there.
class TaskOptionsByTile {
 public:
  explicit TaskOptionsByTile(const BlockArray& a);
  TaskOptions operator()(const Tile& t, const char* name, int priority = 0) const {
    const auto others = t.here() ? alike_.find(t.device().backend) : alike_.end();
    // Tasks of other ranks get a scope that exists on this one, too.
    const Scope own = others != alike_.end() ? others->second : t.here() ? Scope(t.device()) : Scope();
    return {.scope = own, .priority = priority, .name = name};
  }

 private:
  std::map<Backend, Scope> alike_;
};

}  // namespace tessera
