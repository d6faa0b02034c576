// SPDX-License-Identifier: Apache-2.0
// Memory that recordings allocate and release: blocks that serve one storage after another, shared by several
// sequences. Internal to device/.
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

/// Replays on one queue are ordered, so sequences can share blocks. Memory that outlives its recording leaves with its
/// block, which no other sequence writes; they get another block in its place (`generation`).
class SequenceMemory {
 public:
  /// Use of a block for one storage.
  struct Lease {
    explicit Lease(std::uint32_t b) : block(b) {}
    const std::uint32_t block;
    std::atomic<std::uint64_t> ended = 0;  ///< 0: active; else greater than for all leases that ended before
    std::int32_t memory = -1;              ///< the recording's index of this memory, once it is used there
    bool keeps = false;                    ///< the block becomes the recording's and is not shared
  };
  /// A block that has left the pool, and the lease with which it left.
  struct DetachedBlock {
    std::shared_ptr<Storage> storage;
    std::shared_ptr<Lease> lease;
  };

  SequenceMemory() = default;
  ~SequenceMemory();
  SequenceMemory(const SequenceMemory&) = delete;
  SequenceMemory& operator=(const SequenceMemory&) = delete;

  /// Must be held during a replay. Throws ArgumentError while another thread records with this memory.
  std::unique_lock<std::mutex> lock(const char* asked);
  /// Starts a recording. Throws ArgumentError if the memory belongs to another queue, or another thread records with
  /// it.
  void begin(Queue& queue);

  // For the recording thread.
  /// Like Storage::allocate. The block becomes free when the last reference to the result is destroyed.
  std::shared_ptr<Storage> allocate_block(std::size_t bytes, const std::string& label);
  /// The lease of a live storage that was allocated in this recording; null for other storages.
  std::shared_ptr<Lease> lease_of(const Storage* storage) const;
  std::shared_ptr<Storage> block(const Lease& lease) const { return blocks_[lease.block].storage; }
  /// Ends the recording. Returns for each block what has left with it; empty entries for blocks that stay.
  std::vector<DetachedBlock> end();
  void abandon() noexcept;  ///< ends the recording without a result

  /// With the lock held: increments the blocks' reference counts.
  void hold(std::span<const std::uint32_t> blocks);
  /// Decrements them. Unreferenced blocks are returned to the device, after an active recording has ended.
  void release(std::span<const std::uint32_t> blocks) noexcept;

  // With the lock held, or while recording.
  /// Returns the block's memory; allocates it if it has left. Throws OutOfMemory.
  const std::shared_ptr<Storage>& storage_of(std::uint32_t block);
  /// Changes when a block gets other memory.
  std::uint64_t generation() const { return generation_; }
  /// Orders the queue after all uses of the remaining blocks during recordings. Called before a replay.
  void order();

 private:
  struct Block {
    std::shared_ptr<Storage> storage;  ///< null: it has left
    std::size_t bytes = 0;
    std::uint32_t needed = 0;  ///< number of sequences that use it
    bool used = false;         ///< used in a recording since the last `order`
    // While recording:
    std::shared_ptr<Lease> lease;  ///< the active lease
    std::uint64_t free_since = 0;  ///< as Lease::ended
    std::size_t serves_as = 0;     ///< size for which a block in use was chosen; the block may be larger
  };
  void collect() noexcept;
  Block* find(std::size_t size);
  void leave(Block& block) noexcept;
  void drop_unneeded() noexcept;
  void end(DetachedBlock* left) noexcept;

  std::mutex lock_;
  std::vector<std::uint32_t> released_;  // guarded by lock_; during a recording
  bool recording_ = false;               // guarded by lock_; the members below belong to the recording thread meanwhile
  std::shared_ptr<QueueCore> core_;      // of the first recording
  std::vector<Block> blocks_;
  std::unordered_map<const Storage*, std::uint32_t> block_of_;
  std::uint64_t generation_ = 0;
};

}  // namespace tessera
