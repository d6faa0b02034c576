// SPDX-License-Identifier: Apache-2.0
// Memory of one device: live storages, cached blocks for reuse, and the budget for both. Internal to device/.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/spin_lock.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

struct OpenDevice;

/// Returns the allocation size for `bytes`: at least 256, then powers of two with quarter steps, from 64 MiB multiples
/// of 16 MiB. There are few sizes, so growing shapes can reuse blocks, and less than a quarter is wasted.
std::size_t size_class(std::size_t bytes);

class MemoryPool {
 public:
  explicit MemoryPool(OpenDevice& owner) : owner_(owner) {}

  std::shared_ptr<Storage> allocate(std::size_t bytes, std::string label);
  /// Takes back a destroyed storage's memory. The block may be reused while work on it is still running: the next
  /// storage inherits its pending uses.
  void release(Storage& storage) noexcept;
  void relabel(Storage& storage, std::string label);
  MemoryStats stats();
  void reset_peak();
  std::uint64_t trim();
  void set_limit(std::uint64_t bytes);
  std::uint64_t free_memory(std::uint64_t reserve);

 private:
  struct Block {
    Allocation allocation;
    std::vector<QueueUse> uses;
    std::uint64_t stamp = 0;  ///< smaller is older
  };
  struct Room {
    bool enough = true;
    std::uint64_t free = 0, limit = 0;  ///< limit 0: unlimited
    std::string rule;                   ///< name of the limit that applies
    bool chosen = false;                ///< the limit was set by the user, who can raise it
  };

  /// Creates a storage without memory.
  std::shared_ptr<Storage> make(std::size_t bytes, std::string&& label);
  // Called with the lock held:
  void enlist(Storage& storage) noexcept;  ///< registers a storage that has memory
  void delist(Storage& storage) noexcept;
  /// Gives it a cached block, if there is one, and enlists it.
  bool take_cached(std::size_t size, Storage& storage) noexcept;
  void keep(Block& block, std::vector<Block>& victims);   ///< caches the block for reuse
  Room room_for(std::uint64_t bytes, bool take = false);  ///< `take`: also accounts for them as host memory
  Room host_room(std::uint64_t bytes, bool take);
  std::uint64_t explicit_limit() const;
  std::uint64_t cache_cap() const;
  /// Moves cached blocks, oldest first, to `victims` until they add up to `bytes`; if `idle`, only blocks without
  /// running work.
  void pick_victims(std::uint64_t bytes, bool idle, std::vector<Block>& victims);
  std::uint64_t give_back(std::vector<Block>& victims) noexcept;
  [[noreturn]] void exhausted(std::size_t bytes, const std::string& label, const Room& room,
                              const std::string& driver_text);

  OpenDevice& owner_;
  SpinLock lock_;                                     // taken twice per array, mostly for a few instructions
  std::map<std::size_t, std::vector<Block>> cached_;  ///< by size; newest last; a vector may be empty
  Storage* live_ = nullptr;
  std::uint64_t limit_ = 0;  ///< as set by set_limit; 0: use TESSERA_MEMORY_LIMIT
  std::uint64_t live_bytes_ = 0, cached_bytes_ = 0, peak_bytes_ = 0, allocations_ = 0, reuses_ = 0, stamps_ = 0;
};

}  // namespace tessera
