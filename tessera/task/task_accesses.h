// SPDX-License-Identifier: Apache-2.0
// The accesses of one task: its array arguments and their declared modes. Checks that the task complies with them.
// Internal.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/task/access_order.h"
#include "tessera/task/device_load.h"
#include "tessera/task/reduction.h"
#include "tessera/task/stored_access.h"
#include "tessera/task/task_node.h"
#include "tessera/task/task_storage.h"

namespace tessera::detail {

/// Data that only few accesses need.
struct AccessDetails {
  /// Set if `sizes_` cannot describe the array; refers to the task's device while the task runs.
  std::optional<Array> array;
  Array* external = nullptr;  ///< array inside another object; used instead of `array`
  /// Memory on the task's device while the task runs; null if the task uses the home storage.
  std::shared_ptr<Storage> device_storage;
  std::unique_ptr<AccessOrder> nested;  ///< accesses of tasks that this task created; guarded by the storage's lock
  /// Reductions by tasks that this task created; created with the storage's lock held.
  std::unique_ptr<Reductions> reductions;
  std::optional<StoragePart> some;  ///< the part that is accessed; empty for the whole storage
  std::optional<Array> packed;      ///< the view of the home storage, if the task has a packed copy of it

  static void* operator new(std::size_t bytes) { return executor::slab::allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { executor::slab::deallocate(memory, bytes); }
};

class TaskAccesses final : public TaskData {
 public:
  /// Returns the accesses of `node`, which owns them. They are created on first use.
  static TaskAccesses& of(TaskNode& node);
  /// Returns the accesses of the task that the calling thread runs, or null outside of tasks.
  static TaskAccesses* current() noexcept;
  TaskAccesses(const TaskAccesses&) = delete;
  TaskAccesses& operator=(const TaskAccesses&) = delete;

  /// Called on the submitting thread. Evaluates the array. If the task writes it, first evaluates deferred expressions
  /// that read the memory. Throws ArgumentError if the array has history.
  void declare(StoredAccess& access);
  /// Like the function above, for an array inside another object.
  void declare(Array& array, Access mode, MatrixPart triangle);
  /// Called on the submitting thread. Replaces `array` by a slot of a reduction into it.
  void declare_reduction(Array& array, Combine op);
  static void declare_reduction_of(TaskNode& node, StoredAccess& access);

  // Implementation of TaskData.
  void order() override;
  void begin() override;
  void finish() override;
  executor::Group* tasks() override;
  bool can_migrate() const override;
  MissingData missing_on(Device device) const override;
  bool acquire_commute_locks(executor::Node& node) noexcept override;
  void handed_to_device() noexcept override;
  void end(const executor::Failure* failure) noexcept override;
  void destroy() noexcept override;

  /// Returns the declared access to a storage, or null if there is none. `storage` may be the home storage or the
  /// memory that the task uses.
  StoredAccess* declared(const Storage& storage) noexcept;
  const StoredAccess* declared(const Storage& storage) const noexcept {
    return const_cast<TaskAccesses*>(this)->declared(storage);
  }
  /// Throws ArgumentError if the task uses a declared storage in a way that it did not declare.
  void check_use(const StoredAccess& declared, const Storage& used, Access mode) const;
  /// Called when the task uses a storage that it did not declare. Waits for tasks that the task itself created. Throws
  /// ArgumentError if other tasks use the storage.
  void use_undeclared(TaskStorage& data, Access mode) const;

 private:
  class Tasks;
  struct Reduced {
    Reductions* into;
    const Storage* storage;
    Array* array;
    Combine op;
  };
  struct Rare {
    std::uint64_t maker = 0;       // RunningTask::number of the task's creator; 0 outside of tasks
    std::vector<Reduced> reduced;  // used until the dependencies of the task are known
    InlineVector<executor::CommuteLock*, 2> commute_locks;  // locks of commuting accesses, in locking order
    std::size_t commute_locks_held = 0;

    static void* operator new(std::size_t bytes) { return executor::slab::allocate(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept { executor::slab::deallocate(memory, bytes); }
  };
  explicit TaskAccesses(TaskNode* node, bool in_room) : node_(node), is_inline_(in_room) {}
  ~TaskAccesses();

  static TaskAccesses& none();
  TaskAccesses* outer() const noexcept {
    return node_ == nullptr ? nullptr : static_cast<TaskAccesses*>(node_->outer_data());
  }
  Rare& rare() {
    if (!rare_) rare_ = std::make_unique<Rare>();
    return *rare_;
  }
  void add(StoredAccess& access) noexcept {
    (last_ == nullptr ? first_ : last_->next_) = &access;
    last_ = &access;
  }
  template <class F>
  void for_each(F&& f) const {
    for (StoredAccess* a = first_; a != nullptr; a = a->next_) f(*a);
  }
  void release_accesses() noexcept;
  bool reduces_into(const Storage& storage) const noexcept;
  static bool made_by_caller(const executor::Node& node) noexcept;
  static bool used_by_others(AccessOrder& order, Access mode, const StoragePart& part);
  static void separate(StoredAccess& access);
  static Storage& home_of(const StoredAccess& a) noexcept { return a.data_->home(); }
  static std::shared_ptr<Storage> shared_home_of(const StoredAccess& a) noexcept;
  static Storage& memory_of(const StoredAccess& a) noexcept;
  static const StoragePart* partial_part(const StoredAccess& a) noexcept;
  static StoragePart part_of(const StoredAccess& a);
  static Array& full_array_of(StoredAccess& a);
  void take_slots(std::vector<std::unique_lock<std::recursive_mutex>>& locks);
  StoredAccess* outer_of(const StoredAccess& a) const { return outer_of(*a.data_, a.mode(), partial_part(a)); }
  StoredAccess* outer_of(const TaskStorage& data, Access mode, const StoragePart* some) const;
  Reductions* reductions_of(TaskStorage& data, Access mode, const StoragePart* some, bool make) const;
  void pack(StoredAccess& a) const;
  void unpack(StoredAccess& a) const;
  [[noreturn]] void throw_access_error(const Storage& storage, const std::string& wrong,
                                       const std::string& remedy) const;

  TaskNode* const node_;
  // In declaration order. The list is not changed after the task was submitted.
  StoredAccess *first_ = nullptr, *last_ = nullptr;
  std::unique_ptr<Rare> rare_;
  std::atomic<Tasks*> tasks_ = nullptr;  // created with lock_ held
  std::uint32_t acquired_ = 0;           // the data of the first `acquired_` accesses is on the task's device
  executor::SpinLock lock_;
  std::atomic<bool> ended_ = false;
  bool handed_to_device_ = false;  // the work is in the device's queue, and written storages are marked as written
  const bool is_inline_;
};
static_assert(sizeof(TaskAccesses) <= InlineAccessStorage::bytes &&
              alignof(TaskAccesses) <= alignof(InlineAccessStorage));

}  // namespace tessera::detail
