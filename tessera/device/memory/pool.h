// SPDX-License-Identifier: Apache-2.0
// The memory pool of one device: live storages, cached blocks for reuse, and the memory budget. Internal to device/.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/spin_lock.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

struct OpenDevice;

/// Returns the allocation size for `bytes`. Sizes are at least 256 bytes. Below 64 MiB they are powers of two with
/// three steps in between, and from 64 MiB on they are multiples of 16 MiB. The small number of sizes lets growing
/// shapes reuse blocks. Less than a quarter of an allocation is wasted.
std::size_t size_class(std::size_t bytes);

class MemoryPool {
 public:
  explicit MemoryPool(OpenDevice& owner) : owner_(owner) {}

  std::shared_ptr<Storage> allocate(std::size_t bytes, std::string label);
  /// Returns the memory of a destroyed storage to the pool. The block may be reused while work on it is still running;
  /// the next storage inherits its pending uses.
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
    std::uint64_t stamp = 0;  ///< blocks with smaller stamps are older
  };
  struct Room {
    bool enough = true;
    std::uint64_t free = 0, limit = 0;  ///< limit 0: unlimited
    std::string rule;                   ///< name of the limit that applies
    bool chosen = false;                ///< true if the user set the limit and can raise it
  };

  /// Creates a storage without memory.
  std::shared_ptr<Storage> make(std::size_t bytes, std::string&& label);
  // The caller must hold the lock:
  void enlist(Storage& storage) noexcept;  ///< registers a storage that has memory
  void delist(Storage& storage) noexcept;
  /// Assigns a cached block to the storage, if there is one, and registers the storage.
  bool take_cached(std::size_t size, Storage& storage) noexcept;
  void keep(Block& block, std::vector<Block>& victims);   ///< caches the block for reuse
  Room room_for(std::uint64_t bytes, bool take = false);  ///< `take`: also counts the bytes as used host memory
  Room host_room(std::uint64_t bytes, bool take);
  std::uint64_t explicit_limit() const;
  std::uint64_t cache_cap() const;
  /// Moves cached blocks to `victims`, oldest first, until they add up to `bytes`. If `idle` is true, blocks with
  /// running work are skipped.
  void pick_victims(std::uint64_t bytes, bool idle, std::vector<Block>& victims);
  std::uint64_t give_back(std::vector<Block>& victims) noexcept;
  [[noreturn]] void exhausted(std::size_t bytes, const std::string& label, const Room& room,
                              const std::string& driver_text);

  OpenDevice& owner_;
  SpinLock lock_;                                     // acquired twice per array, mostly for a few instructions
  std::map<std::size_t, std::vector<Block>> cached_;  ///< by size, newest last; a vector may be empty
  Storage* live_ = nullptr;
  std::uint64_t limit_ = 0;  ///< set by set_limit; 0: use TESSERA_MEMORY_LIMIT
  std::uint64_t live_bytes_ = 0, cached_bytes_ = 0, peak_bytes_ = 0, allocations_ = 0, reuses_ = 0, stamps_ = 0;
};

}  // namespace tessera
