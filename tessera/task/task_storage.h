// SPDX-License-Identifier: Apache-2.0
// A storage used by tasks: the order of its accesses, and the devices that have its contents. Internal.
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

/// Attached to a storage that was passed to a task. The storage itself is the home; after tasks have run on other
/// devices, the contents are written back on its next access.
class TaskStorage final : public CoherenceHook {
 public:
  /// The object of `storage`; created on first use.
  static TaskStorage& of(Storage& storage);
  explicit TaskStorage(Storage& home);
  ~TaskStorage() override;

  void before_read(Storage&) override { before(Access::in); }
  void before_write(Storage&) override { before(Access::inout); }

  /// `f` writes the contents on first use. It is called again if it throws. Replaces a previous function that has not
  /// been called.
  void set_lazy_fill(Callback<void()> f);
  /// Calls the pending lazy fill function, if any.
  void fill() {
    if (fill_pending_.load(std::memory_order_acquire)) [[unlikely]]
      fill_now();
  }
  bool has_other_writers() const noexcept override;

  Storage& home() const noexcept { return home_; }

  // Ordering. Changes to `order()` require `lock()`. Locks of several storages are taken in the order of their
  // addresses.
  executor::SpinLock& lock() const noexcept { return order_.lock(); }
  AccessOrder& order() noexcept { return order_; }
  /// With `lock()` held: records an undeclared use by a running task. Returns false if another task uses it undeclared
  /// and one of them writes. `use`: RunningTask::use().
  bool record_undeclared_use(Access mode, std::uint64_t use);

  /// The reductions into this storage; created on first use.
  Reductions& reductions();
  bool reduced() const noexcept {
    const Reductions* const r = reductions_.load(std::memory_order_acquire);
    return r != nullptr && r->any();
  }
  /// Combines pending reductions, for tasks that are submitted from now on.
  void combine() {
    if (reduced()) [[unlikely]]
      reductions_.load(std::memory_order_acquire)->combine();
  }
  /// Marks it as a slot of a reduction, which only the tasks of the reduction use, without declaring it.
  void set_slot() noexcept { slot_ = true; }
  bool slot() const noexcept { return slot_; }
  /// Records the failure of a task that used this slot.
  void set_failed(std::shared_ptr<const executor::FailureOrigin> why) noexcept {
    const std::lock_guard hold(lock());
    failed_ = std::move(why);
  }
  std::shared_ptr<const executor::FailureOrigin> failed() const noexcept {
    const std::lock_guard hold(lock());
    return failed_;
  }

  // Location of the contents.
  /// True if no replica was ever created. May change concurrently, except during a task that uses the storage at home.
  bool has_no_replicas() const noexcept { return has_no_replicas_.load(std::memory_order_acquire); }
  /// True if the device has valid contents.
  bool valid_on(Device device);
  /// Returns memory on the device, with the contents if `needed`. It stays there until `release`.
  std::shared_ptr<Storage> acquire(Device device, bool needed, std::shared_ptr<Storage> home);
  /// Marks the contents on `device` as the only valid ones.
  void written(Device device) noexcept;
  /// Ends the use of the memory that `acquire` returned.
  void release(Device device) noexcept;
  /// Copies the newest contents to the home device.
  void write_back(bool evicting = false);
  /// Invalidates all replicas: the home was written without the queue's knowledge.
  void invalidate_replicas();
  /// Frees the device's replica if it is unused. A replica that is the only valid one is written back first, or kept if
  /// `only_clean`. Returns false if nothing was freed. The caller removes its entry from the eviction list.
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
  /// Reads one cache line less if there are no replicas.
  bool home_outdated() const noexcept { return !has_no_replicas() && home_outdated_.load(std::memory_order_acquire); }

  Storage& home_;
  bool slot_ = false;
  std::atomic<bool> fill_pending_ = false;
  Callback<void()> lazy_fill_;  // guarded by moving_; empty once it has begun
  std::atomic<Reductions*> reductions_ = nullptr;
  std::atomic<bool> has_no_replicas_ = true;  // no replica was ever created; ordered tasks read it without a lock
  // Changed by submitters; not read by threads that run tasks.
  struct Undeclared {
    std::uint64_t use;
    bool writes;
  };
  alignas(64) mutable AccessOrder order_;  // mutable: const functions remove ended entries
  std::vector<Undeclared> undeclared_;
  std::shared_ptr<const executor::FailureOrigin> failed_;  // for slots
  std::recursive_mutex moving_;  // guards the following members; locked while contents are moved
  std::vector<Replica> replicas_;
  bool home_valid_ = true;
  bool in_move_ = false;                     // the lock's owner is moving contents: nothing may be evicted
  std::atomic<bool> home_outdated_ = false;  // !home_valid_, readable without the lock
};

/// A contiguous copy of a view on `device`, counted as written back or as fetched.
Array copy_of_view(const Array& view, Device device, bool back = false);

/// The same view of other memory of the same size.
Array in_storage(const Array& array, std::shared_ptr<Storage> storage);

}  // namespace detail
}  // namespace tessera
