// SPDX-License-Identifier: Apache-2.0
// The memory of one device: storages that live, blocks kept for reuse, and the budget that both together stay under.
// Internal to device/.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/spin_lock.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

struct OpenDevice;

/// Bytes really allocated for `bytes`: at least 256, then powers of two with quarter steps, from 64 MiB on multiples of
/// 16 MiB, so that few sizes exist, growing shapes can reuse, and less than a quarter is wasted.
std::size_t size_class(std::size_t bytes);

class MemoryPool {
 public:
  explicit MemoryPool(OpenDevice& owner) : owner_(owner) {}

  std::shared_ptr<Storage> allocate(std::size_t bytes, std::string label);
  /// Takes a dying storage's memory back. A block may be reused while work that used it is still on its way: the next
  /// storage inherits what the block waits for.
  void release(Storage& storage) noexcept;
  void relabel(Storage& storage, std::string label);
  MemoryStats stats();
  void reset_peak();
  std::uint64_t trim();
  void set_limit(std::uint64_t bytes);
  std::uint64_t free_memory();

 private:
  struct Block {
    Allocation allocation;
    std::vector<QueueUse> uses;
    std::uint64_t stamp = 0;  ///< older is smaller
  };
  struct Room {
    bool enough = true;
    std::uint64_t free = 0, limit = 0;  ///< limit 0: none
    std::string rule;                   ///< what set the limit
    bool chosen = false;                ///< somebody set it, and can raise it
  };

  /// Without memory yet.
  std::shared_ptr<Storage> make(std::size_t bytes, std::string&& label);
  // Under the lock:
  void enlist(Storage& storage) noexcept;  ///< one that has its memory
  void delist(Storage& storage) noexcept;
  bool take_cached(std::size_t size, Storage& storage) noexcept;  ///< a block for it, if there is one; enlists it
  void keep(Block& block, std::vector<Block>& victims);           ///< for reuse
  Room room_for(std::uint64_t bytes, bool take = false);          ///< `take`: counts them as held by the host's memory
  Room host_room(std::uint64_t bytes, bool take);
  std::uint64_t explicit_limit() const;
  std::uint64_t cache_cap() const;
  /// Moves cached blocks, oldest first, to `victims` until `bytes` of them are found; only finished ones if `idle`.
  void pick_victims(std::uint64_t bytes, bool idle, std::vector<Block>& victims);
  std::uint64_t give_back(std::vector<Block>& victims) noexcept;
  [[noreturn]] void exhausted(std::size_t bytes, const std::string& label, const Room& room,
                              const std::string& driver_text);

  OpenDevice& owner_;
  SpinLock lock_;                                     // taken twice for each array, mostly for a few instructions
  std::map<std::size_t, std::vector<Block>> cached_;  ///< by size; in each, newest last, or none
  Storage* live_ = nullptr;
  std::uint64_t limit_ = 0;  ///< as set by set_limit; 0: what the environment says
  std::uint64_t live_bytes_ = 0, cached_bytes_ = 0, peak_bytes_ = 0, allocations_ = 0, reuses_ = 0, stamps_ = 0;
};

}  // namespace tessera
