// SPDX-License-Identifier: Apache-2.0
// The accesses of one task: what it was given, how it said it would use that, and whether it does. Internal.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tessera/task/data.h"
#include "tessera/task/node.h"

namespace tessera::detail {

class TaskAccesses final : public TaskData {
 public:
  struct Declared {
    TaskStorage* data = nullptr;
    std::shared_ptr<Storage> home;
    Array* array = nullptr;                  ///< as the task keeps it: put into the device's memory before it runs
    std::shared_ptr<Storage> here;           ///< that memory, while it runs; null: at home
    std::unique_ptr<AccessOrder> nested;     ///< of tasks made by this one; under the storage's lock
    std::unique_ptr<Reductions> reductions;  ///< by tasks made by this one; made under the storage's lock
    std::unique_ptr<StoragePart> some;       ///< null: all of it
    std::unique_ptr<Array> packed;           ///< the view of `home`, where the task has a copy of that alone
    Access mode = Access::in;
    MatrixPart triangle = MatrixPart::none;
    bool packs = false;
    StoragePart part() const { return some ? *some : whole_part(memory().bytes()); }
    Storage& memory() const noexcept { return here ? *here : *home; }
  };

  /// Those of the task, to which they belong from now on.
  static TaskAccesses& of(TaskNode& node);
  /// Those of the task that the calling thread runs; null outside of tasks.
  static TaskAccesses* current() noexcept;
  explicit TaskAccesses(TaskNode& node);
  TaskAccesses();  // of no task
  ~TaskAccesses() override;

  /// On the submitter: `array` is computed, and what is deferred on what will be written, too. ArgumentError if it has
  /// history.
  void declare(Array& array, Access mode, MatrixPart triangle);

  /// On the submitter: it gets a slot of a reduction into `array`.
  void declare_reduction(Array& array, Combine op);

  // TaskData.
  void order() override;
  void begin() override;
  void finish() override;
  executor::Group* tasks() override;
  bool may_move() const override;
  Missing missing_on(Device device) const override;
  bool take_turns(executor::Node& node) noexcept override;
  void end(const executor::Failure* failure) noexcept override;

  /// What it said of a storage, at home or where it is now; null if nothing.
  Declared* declared(const Storage& storage) noexcept;
  const Declared* declared(const Storage& storage) const noexcept {
    return const_cast<TaskAccesses*>(this)->declared(storage);
  }
  /// ArgumentError if it uses what it declared in another way than it said.
  void check_use(const Declared& declared, const Storage& used, Access mode) const;
  /// ArgumentError if it uses a storage that others are using and that it did not declare.
  void check_undeclared(TaskStorage& data, Access mode) const;

 private:
  class Tasks;
  struct Reduced {
    Reductions* into;
    const Storage* storage;
    Array* array;
    Combine op;
  };
  static TaskAccesses& none();
  void take_slots(std::vector<std::unique_lock<std::recursive_mutex>>& locks);
  Declared* outer_of(const Declared& d) const;
  Reductions* reductions_of(const Declared& d, bool make) const;
  void pack(Declared& d) const;
  void unpack(Declared& d) const;
  [[noreturn]] void refuse(const Storage& storage, const std::string& wrong, const std::string& todo) const;

  TaskNode* const node_;
  std::shared_ptr<TaskAccesses> outer_;  // of the task that made this one, until that has ended
  std::vector<Declared, executor::slab::Allocator<Declared>> all_;  // does not change once it is submitted
  std::unique_ptr<std::vector<Reduced>> reduced_;                   // until it is put in order
  executor::SpinLock lock_;                                         // of tasks_ being made
  std::unique_ptr<Tasks> tasks_;
  std::size_t acquired_ = 0;
  InlineVector<executor::Turn*, 2> turns_;  ///< where it commutes, in the order in which they are taken
  std::size_t turns_held_ = 0;
  std::atomic<bool> ended_ = false;
};

}  // namespace tessera::detail
