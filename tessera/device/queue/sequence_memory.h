// SPDX-License-Identifier: Apache-2.0
// Memory that recordings allocate and give up again: blocks, each of which serves one storage after the other, and all
// sequences that share them. Internal to device/.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/device/memory/storage.h"

namespace tessera {

/// Replays of one queue are in order, so that they may have the same blocks. What outlives its recording leaves with
/// its block, which no other sequence writes: they get another one in its place (`generation`).
class SequenceMemory {
 public:
  /// A block's use for one storage.
  struct Lease {
    explicit Lease(std::uint32_t b) : block(b) {}
    const std::uint32_t block;
    std::atomic<std::uint64_t> ended = 0;  ///< 0: it goes on; else greater than those of leases that ended before
    std::int32_t memory = -1;              ///< the recording's number for it, once it is used there
    bool keeps = false;                    ///< the block goes to the recording, and serves nobody else
  };
  /// A block that is the pool's no longer, and the lease with which it went.
  struct DetachedBlock {
    std::shared_ptr<Storage> storage;
    std::shared_ptr<Lease> lease;
  };

  SequenceMemory() = default;
  ~SequenceMemory();
  SequenceMemory(const SequenceMemory&) = delete;
  SequenceMemory& operator=(const SequenceMemory&) = delete;

  /// Held by whoever replays. ArgumentError while another thread records with this memory.
  std::unique_lock<std::mutex> lock(const char* asked);
  /// ArgumentError if it is another queue's, or another thread records with it.
  void begin(Queue& queue);

  // Of the thread that records.
  /// As Storage::allocate. The block is free again when the last reference to what is returned ends.
  std::shared_ptr<Storage> allocate_block(std::size_t bytes, const std::string& label);
  /// The lease of a storage that was lent in this recording, and lives; null for others.
  std::shared_ptr<Lease> lease_of(const Storage* storage) const;
  std::shared_ptr<Storage> block(const Lease& lease) const { return blocks_[lease.block].storage; }
  /// What leaves, by block; none where a block stays.
  std::vector<DetachedBlock> end();
  void abandon() noexcept;  ///< the same, for nobody

  /// In one's turn: these blocks are needed by one sequence more.
  void hold(std::span<const std::uint32_t> blocks);
  /// By one less. The memory of those that nobody needs goes back to the device, once a recording that goes on is over.
  void release(std::span<const std::uint32_t> blocks) noexcept;

  // In one's turn, or while recording.
  /// The block's memory, which is allocated if what it was has left. OutOfMemory.
  const std::shared_ptr<Storage>& storage_of(std::uint32_t block);
  /// Changes when a block's memory does.
  std::uint64_t generation() const { return generation_; }
  /// Orders the queue after what others did, while something was recorded, with blocks that stayed. Before a replay.
  void order();

 private:
  struct Block {
    std::shared_ptr<Storage> storage;  ///< null: it left
    std::size_t bytes = 0;
    std::uint32_t needed = 0;  ///< by so many sequences
    bool used = false;         ///< in a recording, by whoever: `order` has to look
    // While recording:
    std::shared_ptr<Lease> lease;  ///< that goes on
    std::uint64_t free_since = 0;  ///< as Lease::ended
    std::size_t serves_as = 0;     ///< a block of this size, once it is used; a larger one may be all there is
  };
  void collect() noexcept;
  Block* find(std::size_t size);
  void leave(Block& block) noexcept;
  void drop_unneeded() noexcept;
  void end(DetachedBlock* left) noexcept;

  std::mutex lock_;
  std::vector<std::uint32_t> released_;  // under lock_; during a recording
  bool recording_ = false;               // under lock_; what follows is the recording's meanwhile
  std::shared_ptr<QueueCore> core_;      // of the first recording
  std::vector<Block> blocks_;
  std::unordered_map<const Storage*, std::uint32_t> block_of_;
  std::uint64_t generation_ = 0;
};

}  // namespace tessera
