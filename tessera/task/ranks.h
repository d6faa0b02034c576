// SPDX-License-Identifier: Apache-2.0
// Block arrays and regions over several ranks (processes that run the same program). Every rank submits all tasks; each
// task runs on one rank, or on all. All ranks count the writes of each tile, so they know without messages which rank
// needs which contents. dist/ sends and receives them. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/executor/node.h"
#include "tessera/task/access.h"
#include "tessera/task/scope.h"

namespace tessera::detail {

/// Names the contents of a tile. Equal on all ranks.
struct TileKey {
  std::uint64_t array = 0;    ///< number of the block array, and of the epoch (RankMessages::epoch)
  std::uint32_t tile = 0;     ///< number of the tile
  std::uint32_t version = 0;  ///< number of earlier writes
};

/// The submission that causes a message, for the detection of programs that differ.
struct Submission {
  std::uint32_t region = 0;  ///< number of the region in the epoch
  std::uint32_t number = 0;  ///< number of the submission in the region, from 1
  std::uint64_t hash = 0;    ///< of all submissions of the region up to this one
  std::source_location where;
};

/// How a region ended on a rank.
struct RegionEnd {
  Submission last;               ///< the last submission
  std::uint32_t failed = 0;      ///< number of the first submission that failed on this rank; 0: none
  bool left = false;             ///< the region was left by an exception
  bool cancelled = false;        ///< the region was cancelled
  bool remote = false;           ///< `failed` only lacked the contents of a tile
  std::string name, what, text;  ///< of the failed task: its name, the text of its error, and of the whole TaskError
};
/// How a region ended on all ranks.
struct RegionResult {
  int rank = -1;  ///< the rank with the first failure; -1: no failure, or the region was cancelled
  RegionEnd end;  ///< its end
};

/// Messages between ranks that carry tiles. Implemented by dist/. Functions may be called by any thread unless stated
/// otherwise.
class RankMessages {
 public:
  virtual ~RankMessages() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Changes when a region has failed: the ranks may have submitted different tasks, so copies of tiles and version
  /// numbers from before are not used again.
  virtual std::uint64_t epoch() const = 0;
  /// Returns the number of a new block array. Called by the thread that submits tasks.
  virtual std::uint64_t new_array() = 0;
  /// Returns the number of a new region. Called by the thread that submits tasks.
  virtual std::uint32_t new_region() = 0;
  /// Notes a submission. Ranks that wait for each other compare them.
  virtual void submitted(const Submission& last) = 0;

  /// Starts to send the contents of a tile. Ends `node` when they have been sent. `memory` owns `data`.
  virtual void send(int to, const TileKey& key, const Submission& by, std::span<const std::byte> data,
                    std::shared_ptr<void> memory, executor::NodeRef node) = 0;
  /// Tells a rank that the contents of a tile will never exist, because of an error.
  virtual void send_failure(int to, const TileKey& key, const Submission& by, const std::string& text) noexcept = 0;
  /// Starts to receive the contents of a tile. Ends `node` when they have arrived, or with an error. `memory` owns
  /// `room`. Without a node, the contents are received and dropped.
  virtual void receive(int from, const TileKey& key, const Submission& by, std::span<std::byte> room,
                       std::shared_ptr<void> memory, executor::NodeRef node) = 0;
  /// Called when an exception leaves a region on this rank: the other ranks do not wait for its messages any longer.
  virtual void leave_region(const Submission& last) noexcept = 0;
  /// Exchanges the ends of a region. All ranks call it, after all of their tasks of the region have ended.
  virtual RegionResult end_region(const RegionEnd& mine) = 0;
  /// Replaces `bytes` by those of rank `root`. All ranks call it. Throws RemoteError if a rank has left the region.
  virtual void broadcast(std::vector<std::byte>& bytes, int root) = 0;
};

/// The error of a task whose input another rank could not compute. The error itself is reported by that rank.
class RemoteError : public Error {
  using Error::Error;
};

/// The devices of a scope, by rank. Some ranks may have none.
struct RankPlaces {
  std::shared_ptr<RankMessages> messages;
  std::vector<std::vector<Device>> devices;

  /// All places in order.
  std::vector<std::pair<int, Device>> list() const;
  /// True if the rank has a device.
  bool contains(int rank) const { return !devices[static_cast<std::size_t>(rank)].empty(); }
  friend bool operator==(const RankPlaces&, const RankPlaces&) = default;
};

/// The owners and versions of the tiles of a block array. Every rank keeps this record of all tiles, and changes it in
/// the same order. Used by the thread that submits tasks.
class RankTiles {
 public:
  struct Place {
    std::int32_t owner = 0;
    Device device;  ///< of the owner
  };
  RankTiles(std::shared_ptr<RankMessages> messages, DType dtype, Shape shape, Shape tile, std::vector<Place> places);

  RankMessages& messages() const { return *messages_; }
  const std::shared_ptr<RankMessages>& shared_messages() const { return messages_; }
  DType dtype() const { return dtype_; }
  Shape extent(std::size_t tile) const;
  int owner(std::size_t tile) const { return tiles_[tile].place.owner; }
  Device device(std::size_t tile) const { return tiles_[tile].place.device; }
  bool here(std::size_t tile) const { return owner(tile) == rank_; }
  /// The places of all tiles, in the order of the tiles.
  std::vector<Place> places() const;
  /// The devices that have tiles.
  Scope scope() const;

  // Used while tasks are planned.
  /// Forgets copies and versions if a region has failed since the last call.
  void check_epoch() {
    if (epoch_ != messages_->epoch()) start_epoch();
  }
  TileKey key(std::size_t tile) const { return {number_, static_cast<std::uint32_t>(tile), tiles_[tile].version}; }
  /// Notes that a rank gets the current contents of a tile of this rank. Returns false if it has got them before.
  bool add_reader(std::size_t tile, int rank);
  /// Returns this rank's copy of the current contents of another rank's tile, or null if it has none.
  const Array* copy(std::size_t tile) const;
  /// Creates memory for a copy. Memory of outdated copies is used again, so that a rank that is ahead of its tasks does
  /// not receive more than the tiles of two steps of an algorithm.
  const Array& new_copy(std::size_t tile);
  /// The largest number of copies for which there was memory at the same time.
  std::size_t most_copies() const { return most_copies_; }
  /// Counts a write of a tile, which outdates all copies.
  void written(std::size_t tile);
  /// Counts a write of another rank's tile, whose new contents are this rank's copy.
  void written_here(std::size_t tile) { ++tiles_[tile].version; }
  /// Counts a write of all tiles.
  void all_written();
  /// Drops the copies of a tile. They are sent again when they are needed, as another version.
  void release(std::size_t tile) { written(tile); }

 private:
  struct State {
    Place place;
    std::uint32_t version = 0;
    std::uint32_t slot = 0;  ///< in readers_ on the owner, in copies_ on other ranks, from 1; 0: none
  };
  void start_epoch();
  void drop_copies(std::size_t tile);
  std::size_t words() const { return (static_cast<std::size_t>(messages_->size()) + 63) / 64; }

  const std::shared_ptr<RankMessages> messages_;
  const int rank_;
  const DType dtype_;
  const Shape shape_, tile_, grid_;
  std::uint64_t epoch_ = 0, serial_, number_ = 0;
  std::vector<State> tiles_;
  std::vector<std::uint64_t> readers_;  ///< for each slot, a bit for each rank that has the contents
  std::vector<Array> copies_;
  std::vector<std::uint32_t> free_;  ///< slots of copies that are not used
  std::vector<Array> outdated_;      ///< memory of outdated copies
  std::size_t live_ = 0, most_live_ = 0, most_copies_ = 0;
};

/// A tile of a block array over ranks. Without `tiles`, there is only this process.
struct RankTile {
  std::shared_ptr<RankTiles> tiles;
  std::uint32_t number = 0;

  explicit operator bool() const { return tiles != nullptr; }
  bool here() const { return !tiles || tiles->here(number); }
  /// Throws ArgumentError, which names the owner, unless the tile belongs to this rank.
  void check_here(const char* operation) const {
    if (!here()) throw_not_here(operation);
  }

 private:
  [[noreturn]] void throw_not_here(const char* operation) const;
};

}  // namespace tessera::detail
