// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue/sequence_memory.h"

#include <algorithm>
#include <new>

#include "tessera/base/error.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {

namespace {
std::atomic<std::uint64_t> leases_ended = 0;
constexpr std::size_t little = 64 << 10;
}  // namespace

SequenceMemory::~SequenceMemory() {
  for (Block& b : blocks_) b.needed = 0;
  drop_unneeded();
}

void SequenceMemory::drop_unneeded() noexcept {
  if (!core_) return;
  const bool gone = core_->device().gone();
  for (Block& b : blocks_) {
    if (!b.storage || b.lease || b.needed > 0) continue;
    try {
      if (!gone) b.storage->after_read(core_->last_use());  // replays are not recorded as uses of the storage
    } catch (...) {}
    leave(b);
  }
}

void SequenceMemory::hold(std::span<const std::uint32_t> blocks) {
  for (const std::uint32_t b : blocks) ++blocks_[b].needed;
}

void SequenceMemory::release(std::span<const std::uint32_t> blocks) noexcept {
  const std::lock_guard hold(lock_);
  if (recording_) {
    try {
      released_.insert(released_.end(), blocks.begin(), blocks.end());
    } catch (const std::bad_alloc&) {}  // out of memory: the blocks stay in the pool
    return;
  }
  for (const std::uint32_t b : blocks) --blocks_[b].needed;
  drop_unneeded();
}

std::unique_lock<std::mutex> SequenceMemory::lock(const char* asked) {
  std::unique_lock hold(lock_);
  if (recording_)
    fail<ArgumentError>({.operation = asked,
                         .wrong = "another thread is recording a sequence with the same SequencePool",
                         .remedy = "Use the sequences of a pool from one thread at a time"});
  return hold;
}

void SequenceMemory::begin(Queue& queue) {
  const auto hold = lock("Sequence::record");
  if (core_ && core_.get() != &queue.core())
    fail<ArgumentError>({.operation = "Sequence::record",
                         .with = {{"pool of a queue of", to_string(core_->device().device)},
                                  {"recording on", to_string(queue.device())}},
                         .wrong = "the SequencePool belongs to another queue, which is not ordered with this one",
                         .remedy = "Use a separate pool for each queue"});
  core_ = queue.core().shared_from_this();
  recording_ = true;
}

void SequenceMemory::leave(Block& block) noexcept {
  block_of_.erase(block.storage.get());
  block.storage.reset();
  ++generation_;
}

/// Makes blocks free again if their leases have ended.
void SequenceMemory::collect() noexcept {
  for (Block& b : blocks_) {
    if (!b.lease) continue;
    const std::uint64_t ended = b.lease->ended.load(std::memory_order_acquire);
    if (ended == 0) continue;
    if (b.lease->keeps) leave(b);
    b.free_since = ended;
    b.lease.reset();
  }
}

/// Chooses a block. It prefers blocks that this recording has released, by the same rule as the device's pool, so that
/// recording does not need more memory. Then it tries, in index order, blocks that this recording has not used yet, so
/// that repeated work finds the same blocks. Blocks that are large and much larger than needed are avoided: if the
/// memory outlives the recording, the block is detached with it, and the other sequences must allocate a new one.
SequenceMemory::Block* SequenceMemory::find(std::size_t size) {
  const auto fits = [&](std::size_t bytes) { return bytes >= size && bytes <= size + size / 4; };
  Block* best = nullptr;
  for (Block& b : blocks_)
    if (b.storage && !b.lease && fits(b.serves_as) &&
        (best == nullptr || b.serves_as < best->serves_as ||
         (b.serves_as == best->serves_as && b.free_since > best->free_since)))
      best = &b;
  if (best != nullptr) return best;
  for (Block& b : blocks_)
    if (b.serves_as == 0 && fits(b.bytes)) return &b;
  for (Block& b : blocks_)
    if (b.serves_as == 0 && b.storage && b.bytes >= size && b.bytes <= std::max(4 * size, little) &&
        (best == nullptr || b.bytes < best->bytes))
      best = &b;
  return best;
}

std::shared_ptr<Storage> SequenceMemory::allocate_block(std::size_t bytes, const std::string& label) {
  collect();
  MemoryPool& pool = core_->device().pool;
  const bool possible = bytes <= std::size_t{1} << 62;  // otherwise the pool throws
  const std::size_t size = possible ? size_class(bytes) : bytes;
  Block* block = possible ? find(size) : nullptr;
  if (block == nullptr) {
    auto storage = pool.allocate(bytes, label);
    const std::size_t got = storage->allocation().bytes;
    blocks_.push_back({.storage = std::move(storage), .bytes = got});
    block = &blocks_.back();
  }
  const auto number = static_cast<std::uint32_t>(block - blocks_.data());
  const std::shared_ptr<Storage> storage = storage_of(number);
  // Wait for all earlier replays, which are not recorded as uses of the storage.
  if (block->serves_as == 0) storage->after_read(core_->last_use());
  const auto lease = std::make_shared<Lease>(number);
  block_of_[storage.get()] = number;
  storage->bytes_ = bytes;
  storage->owned_by_recording_ = true;
  storage->exposures_.store(0, std::memory_order_relaxed);
  pool.relabel(*storage, label);
  std::shared_ptr<Storage> lent(storage.get(), [lease, held = storage](Storage*) mutable {
    held.reset();
    lease->ended.store(leases_ended.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_release);
  });
  block->lease = lease;
  if (block->serves_as == 0) block->serves_as = block->bytes <= size + size / 4 ? block->bytes : size;
  return lent;
}

std::shared_ptr<SequenceMemory::Lease> SequenceMemory::lease_of(const Storage* storage) const {
  const auto found = block_of_.find(storage);
  return found != block_of_.end() ? blocks_[found->second].lease : nullptr;
}

std::vector<SequenceMemory::DetachedBlock> SequenceMemory::end() {
  std::vector<DetachedBlock> left(blocks_.size());
  end(left.data());
  return left;
}

void SequenceMemory::abandon() noexcept { end(nullptr); }

void SequenceMemory::end(DetachedBlock* left) noexcept {
  collect();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& b = blocks_[i];
    b.used = b.used || b.serves_as != 0;
    b.serves_as = 0;
    if (b.lease) {
      if (left != nullptr) left[i] = {b.storage, b.lease};
      leave(b);
      b.lease.reset();
    } else if (b.storage) {
      b.storage->bytes_ = b.bytes;  // all storages that used the block fit in it
    }
  }
  block_of_.clear();
  const std::lock_guard hold(lock_);
  recording_ = false;
  for (const std::uint32_t b : released_) --blocks_[b].needed;
  if (left == nullptr || !released_.empty()) drop_unneeded();
  released_.clear();
}

void SequenceMemory::order() {
  for (Block& b : blocks_) {
    if (!b.used) continue;
    if (b.storage) b.storage->before_write(*core_);
    b.used = false;
  }
}

const std::shared_ptr<Storage>& SequenceMemory::storage_of(std::uint32_t number) {
  Block& b = blocks_[number];
  if (!b.storage) b.storage = core_->device().pool.allocate(b.bytes, "memory of a recording");
  return b.storage;
}

}  // namespace tessera
