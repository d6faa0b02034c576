// SPDX-License-Identifier: Apache-2.0
// A storage that is used by tasks: the order of its accesses, and the devices that have its contents. Internal.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"
#include "tessera/task/access.h"
#include "tessera/task/access_order.h"
#include "tessera/task/reduction.h"

namespace tessera {

namespace detail {

class TaskAccesses;

/// Attached to a storage that was passed to a task. The storage itself is on the home device. After tasks have run on
/// other devices, the contents are written back when the storage is next accessed.
class TaskStorage final : public CoherenceHook {
 public:
  /// Returns the object attached to `storage`. It is created on first use.
  static TaskStorage& of(Storage& storage);
  explicit TaskStorage(Storage& home);
  ~TaskStorage() override;

  void before_read(Storage&) override { before(Access::in); }
  void before_write(Storage&) override { before(Access::inout); }

  /// Sets a function that writes the contents on first use. If it throws, it is called again on the next use. Replaces
  /// a previous function that has not been called.
  void set_lazy_fill(Callback<void()> f);
  /// Calls the lazy fill function if it has not been called.
  void fill() {
    if (fill_pending_.load(std::memory_order_acquire)) [[unlikely]]
      fill_now();
  }
  bool has_other_writers() const noexcept override;

  Storage& home() const noexcept { return home_; }

  // Ordering. Changes to `order()` require `lock()`. If several storages are locked, they are locked in the order of
  // their addresses.
  executor::SpinLock& lock() const noexcept { return order_.lock(); }
  AccessOrder& order() noexcept { return order_; }
  /// Records that a running task uses the storage without having declared it. Returns false if another task also uses
  /// the storage without having declared it, and one of the two tasks writes. `use` is RunningTask::use(). The caller
  /// must hold `lock()`.
  bool record_undeclared_use(Access mode, std::uint64_t use);

  /// Returns the reductions into this storage. They are created on first use.
  Reductions& reductions();
  bool reduced() const noexcept {
    const Reductions* const r = reductions_.load(std::memory_order_acquire);
    return r != nullptr && r->any();
  }
  /// Combines pending reductions. Tasks that are submitted later use the result.
  void combine() {
    if (reduced()) [[unlikely]]
      reductions_.load(std::memory_order_acquire)->combine();
  }
  /// Marks the storage as a slot of a reduction. Only tasks of the reduction use a slot, and they do not declare it.
  void set_slot() noexcept { slot_ = true; }
  bool slot() const noexcept { return slot_; }
  /// Records that a task that used this slot failed.
  void set_failed(std::shared_ptr<const executor::FailureOrigin> why) noexcept {
    const std::lock_guard hold(lock());
    failed_ = std::move(why);
  }
  std::shared_ptr<const executor::FailureOrigin> failed() const noexcept {
    const std::lock_guard hold(lock());
    return failed_;
  }

  // Location of the contents.
  /// True if no replica was ever created. May change at any time, except during a task that uses the home storage.
  bool has_no_replicas() const noexcept { return has_no_replicas_.load(std::memory_order_acquire); }
  /// Returns true if the device has the current contents.
  bool valid_on(Device device);
  /// Returns memory on the device. If `needed` is true, the memory has the current contents. It is not evicted before
  /// `release`.
  std::shared_ptr<Storage> acquire(Device device, bool needed, std::shared_ptr<Storage> home);
  /// Marks the contents on `device` as the only valid ones.
  void written(Device device) noexcept;
  /// Ends the use of memory that `acquire` returned.
  void release(Device device) noexcept;
  /// Copies the newest contents to the home device.
  void write_back(bool evicting = false);
  /// Invalidates all replicas. Called when the home storage was written without the queue's knowledge.
  void invalidate_replicas();
  /// Frees the device's replica if it is unused. If the replica is the only valid one, it is written back first, or not
  /// freed if `only_clean` is true. Returns false if nothing was freed. The caller removes the replica from the
  /// eviction list.
  bool evict(Device device, bool only_clean);
  std::vector<Device> valid_devices();

 private:
  struct Replica {
    Device device;
    std::shared_ptr<Storage> storage;
    bool valid = false;
    unsigned users = 0;
  };
  void before(Access mode);
  void fill_now();
  void wait_for(AccessOrder& order, Access mode);
  Replica* replica_on(Device device) noexcept;
  void move(Storage& to, Storage& from);
  void add_to_eviction_list(Device device) noexcept;
  /// Avoids reading a second cache line if there are no replicas.
  bool home_outdated() const noexcept { return !has_no_replicas() && home_outdated_.load(std::memory_order_acquire); }

  Storage& home_;
  bool slot_ = false;
  std::atomic<bool> fill_pending_ = false;
  Callback<void()> lazy_fill_;  // guarded by moving_; reset when the call has begun
  std::atomic<Reductions*> reductions_ = nullptr;
  std::atomic<bool> has_no_replicas_ = true;  // true if no replica was ever created; tasks read it without a lock
  // Written by threads that submit tasks, and not read by threads that run tasks.
  struct Undeclared {
    std::uint64_t use;
    bool writes;
  };
  alignas(64) mutable AccessOrder order_;  // mutable because const functions remove ended entries
  std::vector<Undeclared> undeclared_;
  std::shared_ptr<const executor::FailureOrigin> failed_;  // used for slots
  std::recursive_mutex moving_;  // guards the following members; locked while contents are moved
  std::vector<Replica> replicas_;
  bool home_valid_ = true;
  bool in_move_ = false;                     // the owner of the lock is moving contents, so nothing may be evicted
  std::atomic<bool> home_outdated_ = false;  // equal to !home_valid_, but readable without the lock
};

/// Returns a contiguous copy of a view on `device`. `back` determines if the copy is counted as written back or as
/// fetched.
Array copy_of_view(const Array& view, Device device, bool back = false);

/// Returns the same view of another storage with the same size.
Array in_storage(const Array& array, std::shared_ptr<Storage> storage);

}  // namespace detail
}  // namespace tessera
