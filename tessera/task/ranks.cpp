// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/ranks.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/executor/executor.h"

namespace tessera::detail {

std::vector<std::pair<int, Device>> RankPlaces::list() const {
  std::vector<std::pair<int, Device>> all;
  for (std::size_t r = 0; r < devices.size(); ++r)
    for (const Device d : devices[r]) all.emplace_back(static_cast<int>(r), d);
  return all;
}

namespace {

/// Only the thread that submits tasks uses block arrays over ranks, because all ranks count them alike.
void check_not_in_task() {
  if (executor::Executor::current() != nullptr)
    fail<ArgumentError>({.operation = "BlockArray",
                         .wrong = "a task uses a block array over ranks that was not passed to it",
                         .remedy = "Pass the array to the task, or use it outside of tasks"});
}

}  // namespace

RankTiles::RankTiles(std::shared_ptr<RankMessages> messages, DType dtype, Shape shape, Shape tile,
                     std::vector<Place> places)
    : messages_(std::move(messages)),
      rank_(messages_->rank()),
      dtype_(dtype),
      shape_(std::move(shape)),
      tile_(std::move(tile)),
      grid_([&] {
        Shape grid;
        for (std::size_t d = 0; d < shape_.size(); ++d) grid.push_back((shape_[d] + tile_[d] - 1) / tile_[d]);
        return grid;
      }()),
      serial_((check_not_in_task(), messages_->new_array())) {
  tiles_.reserve(places.size());
  for (const Place& p : places) tiles_.push_back({.place = p});
  start_epoch();
}

/// The lower 40 bits of the number are those of the array, and the upper ones those of the epoch.
void RankTiles::start_epoch() {
  epoch_ = messages_->epoch();
  number_ = epoch_ << 40 | serial_;
  for (State& t : tiles_) t.version = t.slot = 0;
  readers_.clear(), copies_.clear(), free_.clear(), outdated_.clear();
  live_ = most_live_ = 0;
}

Shape RankTiles::extent(std::size_t tile) const {
  Shape out = grid_;
  for (std::size_t d = out.size(); d-- > 0;) {
    const auto n = static_cast<std::size_t>(grid_[d]);
    out[d] = std::min(tile_[d], shape_[d] - static_cast<std::int64_t>(tile % n) * tile_[d]);
    tile /= n;
  }
  return out;
}

std::vector<RankTiles::Place> RankTiles::places() const {
  std::vector<Place> all;
  all.reserve(tiles_.size());
  for (const State& t : tiles_) all.push_back(t.place);
  return all;
}

Scope RankTiles::scope() const {
  RankPlaces places{messages_, std::vector<std::vector<Device>>(static_cast<std::size_t>(messages_->size()))};
  for (const State& t : tiles_) {
    auto& devices = places.devices[static_cast<std::size_t>(t.place.owner)];
    const auto at = std::ranges::lower_bound(devices, t.place.device);
    if (at == devices.end() || *at != t.place.device) devices.insert(at, t.place.device);
  }
  return Scope(std::make_shared<const RankPlaces>(std::move(places)));
}

bool RankTiles::add_reader(std::size_t tile, int rank) {
  State& t = tiles_[tile];
  if (t.slot == 0) {
    readers_.resize(readers_.size() + words());
    t.slot = static_cast<std::uint32_t>(readers_.size() / words());
  }
  const auto r = static_cast<std::size_t>(rank);
  std::uint64_t& word = readers_[(t.slot - 1) * words() + r / 64];
  const std::uint64_t bit = std::uint64_t{1} << r % 64;
  if ((word & bit) != 0) return false;
  word |= bit;
  return true;
}

const Array* RankTiles::copy(std::size_t tile) const {
  const std::uint32_t slot = tiles_[tile].slot;
  return slot == 0 ? nullptr : &copies_[slot - 1];
}

const Array& RankTiles::new_copy(std::size_t tile) {
  State& t = tiles_[tile];
  const Shape shape = extent(tile);
  if (free_.empty()) {
    copies_.emplace_back();
    t.slot = static_cast<std::uint32_t>(copies_.size());
  } else {
    t.slot = free_.back();
    free_.pop_back();
  }
  most_live_ = std::max(most_live_, ++live_);
  Array& copy = copies_[t.slot - 1];
  const auto used = std::ranges::find_if(outdated_, [&](const Array& a) { return a.shape() == shape; });
  if (live_ + outdated_.size() > 2 * most_live_ && used != outdated_.end()) {
    copy = *used;
    outdated_.erase(used);
  } else {
    copy = Array::empty(shape, dtype_, Device{});
  }
  most_copies_ = std::max(most_copies_, live_ + outdated_.size());
  return copy;
}

void RankTiles::written(std::size_t tile) {
  ++tiles_[tile].version;
  drop_copies(tile);
}

void RankTiles::all_written() {
  check_epoch();
  for (std::size_t t = 0; t < tiles_.size(); ++t) written(t);
}

void RankTiles::drop_copies(std::size_t tile) {
  State& t = tiles_[tile];
  if (t.slot == 0) return;
  if (here(tile)) {
    std::fill_n(readers_.begin() + static_cast<std::ptrdiff_t>((t.slot - 1) * words()), words(), 0);
  } else {
    outdated_.push_back(std::exchange(copies_[t.slot - 1], Array()));
    --live_;
    if (live_ + outdated_.size() > 2 * most_live_) outdated_.erase(outdated_.begin());
    free_.push_back(t.slot);
    t.slot = 0;
  }
}

void RankTile::throw_not_here(const char* operation) const {
  fail<ArgumentError>({.operation = operation,
                       .with = {{"tile", std::to_string(number)},
                                {"owner", "rank " + std::to_string(tiles->owner(number))},
                                {"this rank", std::to_string(tiles->messages().rank())}},
                       .wrong = "the tile belongs to another rank",
                       .remedy = "Pass the tile to a task of a region, or copy the block array with gather()"});
}

}  // namespace tessera::detail
