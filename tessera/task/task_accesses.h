// SPDX-License-Identifier: Apache-2.0
// The accesses of one task: what it was given, how it said it would use that, and whether it does. Internal.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/task/stored_access.h"
#include "tessera/task/task_node.h"
#include "tessera/task/task_storage.h"

namespace tessera::detail {

/// What few accesses need beside themselves.
struct AccessDetails {
  std::optional<Array> array;               ///< of which its sizes do not say all; as the task has it while it runs
  Array* external = nullptr;                ///< kept by somebody else, else the same
  std::shared_ptr<Storage> device_storage;  ///< the memory of the task's device, while it runs; null: at home
  std::unique_ptr<AccessOrder> nested;      ///< of tasks made by this one; under the storage's lock
  std::unique_ptr<Reductions> reductions;   ///< by tasks made by this one; made under the storage's lock
  std::optional<StoragePart> some;          ///< none: all of it
  std::optional<Array> packed;              ///< the view at home, where the task has a copy of that alone

  static void* operator new(std::size_t bytes) { return executor::slab::allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { executor::slab::deallocate(memory, bytes); }
};

class TaskAccesses final : public TaskData {
 public:
  /// Those of the task, to which they belong from now on.
  static TaskAccesses& of(TaskNode& node);
  /// Those of the task that the calling thread runs; null outside of tasks.
  static TaskAccesses* current() noexcept;
  TaskAccesses(const TaskAccesses&) = delete;
  TaskAccesses& operator=(const TaskAccesses&) = delete;

  /// On the submitter: the array is computed, and what is deferred on what will be written, too. ArgumentError if it
  /// has history.
  void declare(StoredAccess& access);
  /// The same of an array that is kept elsewhere.
  void declare(Array& array, Access mode, MatrixPart triangle);
  /// On the submitter: it gets a slot of a reduction into `array`, which becomes that.
  void declare_reduction(Array& array, Combine op);
  static void declare_reduction_of(TaskNode& node, StoredAccess& access);

  // TaskData.
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

  /// What it said of a storage, at home or where it is now; null if nothing.
  StoredAccess* declared(const Storage& storage) noexcept;
  const StoredAccess* declared(const Storage& storage) const noexcept {
    return const_cast<TaskAccesses*>(this)->declared(storage);
  }
  /// ArgumentError if it uses what it declared in another way than it said.
  void check_use(const StoredAccess& declared, const Storage& used, Access mode) const;
  /// It uses a storage that it did not declare: waits for tasks that it made itself. ArgumentError if others use it.
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
    std::uint64_t maker = 0;                                // of the task: RunningTask::number; 0: the program
    std::vector<Reduced> reduced;                           // until it is put in order
    InlineVector<executor::CommuteLock*, 2> commute_locks;  // where it commutes, in the order in which they are taken
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
  // In the order in which they were declared; they do not change once the task is submitted.
  StoredAccess *first_ = nullptr, *last_ = nullptr;
  std::unique_ptr<Rare> rare_;
  std::atomic<Tasks*> tasks_ = nullptr;  // made with lock_ held
  std::uint32_t acquired_ = 0;           // of them, those that are where the task runs
  executor::SpinLock lock_;
  std::atomic<bool> ended_ = false;
  bool handed_to_device_ = false;  // to the device, with what it wrote
  const bool is_inline_;
};
static_assert(sizeof(TaskAccesses) <= InlineAccessStorage::bytes &&
              alignof(TaskAccesses) <= alignof(InlineAccessStorage));

}  // namespace tessera::detail
