// SPDX-License-Identifier: Apache-2.0
// A storage that tasks use: which of them do, in which order, and on which devices its contents are. Internal.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/task/access.h"
#include "tessera/task/reduction.h"

namespace tessera {

namespace detail {

class TaskAccesses;

/// Attached to a storage that a task was given. The storage itself is its home: what was there before tasks is there
/// after them, wherever they ran, as soon as somebody asks.
class TaskStorage final : public CoherenceHook {
 public:
  /// The storage's; made when it is first asked for.
  static TaskStorage& of(Storage& storage);
  explicit TaskStorage(Storage& home);
  ~TaskStorage() override;

  void before_read(Storage&) override { before(Access::in); }
  void before_write(Storage&) override { before(Access::inout); }

  /// `f` writes the contents, before anybody else uses them and not earlier; it is called again if it throws. In the
  /// place of what was said before, unless that has been called.
  void set_lazy_fill(std::function<void()> f);
  /// Now, unless they are there.
  void fill() {
    if (fill_pending_.load(std::memory_order_acquire)) [[unlikely]]
      fill_now();
  }
  bool has_other_writers() const noexcept override;

  Storage& home() const noexcept { return home_; }

  // Order. `order()` is changed under `lock()`: that of several storages is taken by their addresses.
  executor::SpinLock& lock() const noexcept { return order_.lock(); }
  AccessOrder& order() noexcept { return order_; }
  /// Under `lock()`: a running task uses it and did not declare that. False if another one does so, too, and one of
  /// them writes. `use`: RunningTask::use().
  bool record_undeclared_use(Access mode, std::uint64_t use);

  /// Those into it; made when first asked for.
  Reductions& reductions();
  bool reduced() const noexcept {
    const Reductions* const r = reductions_.load(std::memory_order_acquire);
    return r != nullptr && r->any();
  }
  /// What tasks have put into slots is in it, for what is submitted from now on.
  void combine() {
    if (reduced()) [[unlikely]]
      reductions_.load(std::memory_order_acquire)->combine();
  }
  /// It is a slot of a reduction: no task says that it uses it, and none but those of the reduction do.
  void set_slot() noexcept { slot_ = true; }
  bool slot() const noexcept { return slot_; }
  /// Why a task that used the slot has no result, where one has none.
  void set_failed(std::shared_ptr<const executor::FailureOrigin> why) noexcept {
    const std::lock_guard hold(lock());
    failed_ = std::move(why);
  }
  std::shared_ptr<const executor::FailureOrigin> failed() const noexcept {
    const std::lock_guard hold(lock());
    return failed_;
  }

  // Where its contents are.
  /// It never was anywhere but at home; of the moment, sure for a task that uses it and runs there.
  bool has_no_replicas() const noexcept { return has_no_replicas_.load(std::memory_order_acquire); }
  /// Bytes that a device need not be sent.
  bool valid_on(Device device);
  /// Memory of the device with the contents, unless these are not `needed`; stays there until `release`.
  std::shared_ptr<Storage> acquire(Device device, bool needed, std::shared_ptr<Storage> home);
  /// The only valid contents are there now.
  void written(Device device) noexcept;
  /// What `acquire` gave is used no more.
  void release(Device device) noexcept;
  /// The newest contents are at home.
  void write_back(bool evicting = false);
  /// They are valid at home alone: somebody has written there without saying so to the queue.
  void invalidate_replicas();
  /// The device's copy goes, if nobody is using it; the only valid one is brought home before, or stays where only a
  /// `clean` one is to go. False if nothing went. Its entry in the list of unused ones is the caller's.
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
  /// Of one that was never elsewhere a line of memory less.
  bool home_outdated() const noexcept { return !has_no_replicas() && home_outdated_.load(std::memory_order_acquire); }

  Storage& home_;
  bool slot_ = false;
  std::atomic<bool> fill_pending_ = false;
  std::function<void()> lazy_fill_;  // under moving_; empty once it has begun
  std::atomic<Reductions*> reductions_ = nullptr;
  std::atomic<bool> has_no_replicas_ =
      true;  // there never was a copy: to be read without a lock, by tasks that were ordered
  // What submitters change, and threads that run tasks do not look at.
  struct Undeclared {
    std::uint64_t use;
    bool writes;
  };
  alignas(64) mutable AccessOrder order_;  // const where it forgets what has ended
  std::vector<Undeclared> undeclared_;
  std::shared_ptr<const executor::FailureOrigin> failed_;  // of a slot
  std::recursive_mutex moving_;                            // of what follows: held while contents are moved
  std::vector<Replica> replicas_;
  bool home_valid_ = true;
  bool in_move_ = false;  // contents are being moved, by whoever holds the lock: nothing goes meanwhile
  std::atomic<bool> home_outdated_ = false;  // !home_valid_, to be read without the lock
};

/// The elements of a view alone, one after the other on the device; counted as written back or as fetched.
Array copy_of_view(const Array& view, Device device, bool back = false);

/// `array` in other memory of the same size.
Array in_storage(const Array& array, std::shared_ptr<Storage> storage);

}  // namespace detail
}  // namespace tessera
