// SPDX-License-Identifier: Apache-2.0
// Memory that recordings allocate and release. Its blocks are used by one storage after another and shared by several
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

/// Sequences can share blocks because replays on one queue are ordered. Memory that outlives its recording is detached
/// from the pool together with its block, so that no other sequence writes it. The other sequences then get a different
/// block (see `generation`).
class SequenceMemory {
 public:
  /// The use of a block by one storage.
  struct Lease {
    explicit Lease(std::uint32_t b) : block(b) {}
    const std::uint32_t block;
    std::atomic<std::uint64_t> ended = 0;  ///< 0: active; otherwise a number that increases with each lease that ends
    std::int32_t memory = -1;              ///< index of this memory in the recording, set when it is first used there
    bool keeps = false;  ///< true: the block is detached from the pool for this recording and not shared
  };
  /// A block that was detached from the pool, and its last lease.
  struct DetachedBlock {
    std::shared_ptr<Storage> storage;
    std::shared_ptr<Lease> lease;
  };

  SequenceMemory() = default;
  ~SequenceMemory();
  SequenceMemory(const SequenceMemory&) = delete;
  SequenceMemory& operator=(const SequenceMemory&) = delete;

  /// Returns a lock that must be held during a replay. Throws ArgumentError while another thread records with this
  /// memory.
  std::unique_lock<std::mutex> lock(const char* asked);
  /// Starts a recording. Throws ArgumentError if the memory belongs to another queue, or if another thread is recording
  /// with it.
  void begin(Queue& queue);

  // Called by the recording thread:
  /// Like Storage::allocate. The block becomes free when the last reference to the result is destroyed.
  std::shared_ptr<Storage> allocate_block(std::size_t bytes, const std::string& label);
  /// Returns the lease of a storage that was allocated in this recording and still exists; null for other storages.
  std::shared_ptr<Lease> lease_of(const Storage* storage) const;
  std::shared_ptr<Storage> block(const Lease& lease) const { return blocks_[lease.block].storage; }
  /// Ends the recording. Returns an entry for each block: its storage and lease if it was detached, else an empty
  /// entry.
  std::vector<DetachedBlock> end();
  void abandon() noexcept;  ///< ends the recording without a result

  /// Increments the blocks' reference counts. The lock must be held.
  void hold(std::span<const std::uint32_t> blocks);
  /// Decrements the blocks' reference counts. Unreferenced blocks are returned to the device, but not before an active
  /// recording has ended.
  void release(std::span<const std::uint32_t> blocks) noexcept;

  // Called with the lock held, or while recording:
  /// Returns the block's memory. Allocates new memory if the block was detached. Throws OutOfMemory.
  const std::shared_ptr<Storage>& storage_of(std::uint32_t block);
  /// Changes when a block is assigned different memory.
  std::uint64_t generation() const { return generation_; }
  /// Makes later work in the queue wait for all uses of the pool's blocks during recordings. Called before a replay.
  void order();

 private:
  struct Block {
    std::shared_ptr<Storage> storage;  ///< null if it was detached
    std::size_t bytes = 0;
    std::uint32_t needed = 0;  ///< number of sequences that use it
    bool used = false;         ///< used in a recording since the last `order`
    // Used only while recording:
    std::shared_ptr<Lease> lease;  ///< the active lease
    std::uint64_t free_since = 0;  ///< like Lease::ended
    std::size_t serves_as = 0;     ///< requested size for which the block was chosen; the block may be larger
  };
  void collect() noexcept;
  Block* find(std::size_t size);
  void leave(Block& block) noexcept;
  void drop_unneeded() noexcept;
  void end(DetachedBlock* left) noexcept;

  std::mutex lock_;
  std::vector<std::uint32_t> released_;  // blocks released during a recording; guarded by lock_
  bool recording_ = false;  // guarded by lock_; while it is true, the members below belong to the recording thread
  std::shared_ptr<QueueCore> core_;  // queue of the first recording
  std::vector<Block> blocks_;
  std::unordered_map<const Storage*, std::uint32_t> block_of_;
  std::uint64_t generation_ = 0;
};

}  // namespace tessera
