// SPDX-License-Identifier: Apache-2.0
// A task as a node of the executor: inherited options, device, name and completion. Regions are built on it. Internal.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/inline_vector.h"
#include "tessera/base/owner.h"
#include "tessera/device/context.h"
#include "tessera/device/memory/storage.h"
#include "tessera/executor/group.h"
#include "tessera/task/error.h"
#include "tessera/task/options.h"

namespace tessera {

namespace detail {

class DeviceLoad;
struct MissingData;
class TaskNode;

namespace tracing {
// See trace_hooks.h.
void comes_after(const TaskNode& task, const executor::Node& predecessor, executor::Node::Dependency kind) noexcept;
}  // namespace tracing

/// The data accesses of a task. They are attached before the task is submitted, and may make the task depend on others
/// (`TaskNode::after`).
class TaskData {
 public:
  /// Called last on the submitting thread. Adds dependencies (`TaskNode::after`).
  virtual void order() {}
  /// Called on the executing thread before the function. If it throws, the task fails.
  virtual void begin() {}
  /// Returns the group for tasks outside of regions that this task creates. The task ends after the tasks of the group.
  /// Returns null after the task has ended.
  virtual executor::Group* tasks() { return nullptr; }
  /// Called on the executing thread after the function, even if the function threw. If it throws, the task fails.
  virtual void finish() {}
  /// Returns true if the task may begin on a device other than the one on which it was placed.
  virtual bool can_migrate() const { return false; }
  /// Called when the function has returned and its work is in the device's queue. Later tasks on this device see its
  /// writes.
  virtual void handed_to_device() noexcept {}
  /// Returns the copies that are necessary before the task can begin on this device.
  virtual MissingData missing_on(Device) const;
  /// Called for a gated task when its predecessors have ended; see executor::Node::try_acquire_resources.
  virtual bool acquire_commute_locks(executor::Node&) noexcept { return true; }
  /// Called when the task has run, failed, or was skipped or cancelled, before its successors are notified.
  virtual void end(const executor::Failure*) noexcept {}
  /// Called when the task is destroyed. Destroys this object.
  virtual void destroy() noexcept = 0;

 protected:
  ~TaskData() = default;
};

/// The tasks of one device that belong to no region, and their unobserved errors. Exists until the process ends.
class DeviceTasks final : public executor::Group {
 public:
  DeviceTasks(executor::Executor& executor, Device device);
  const Device device;
  /// Returns the group of a device. It is created on first use.
  static DeviceTasks& of(Device device);
  /// Returns the groups of all devices that have had tasks.
  static std::vector<DeviceTasks*> all();

 protected:
  void failed(const executor::Node& node) noexcept override;
};
/// Called by a group when one of its tasks failed. The error is printed at exit unless it is observed before.
void remember_failure(const executor::Node& node, Device device) noexcept;
/// Returns the errors of tasks outside of regions on these devices that have not been thrown yet.
std::vector<executor::FailureRef> unreported_failures(std::span<const Device> devices);

/// Collects the devices on which a task may run, given its function and arguments, and chooses one of them.
class TaskPlacer {
 public:
  explicit TaskPlacer(const InheritedOptions* options)
      : unsaid_(options == nullptr || !options->scope), declared_scope_(unsaid_ ? nullptr : &*options->scope) {}
  /// True if no scope was set for the task or inherited.
  bool unsaid() const noexcept { return unsaid_; }
  const Scope& scope() const noexcept {
    return narrowed_scope_ ? *narrowed_scope_ : declared_scope_ != nullptr ? *declared_scope_ : default_scope();
  }
  /// True if only one device is possible.
  bool one_device() const noexcept { return has_no_scope() || scope().devices().size() == 1; }
  /// Restricts the scope. `what` is the reason for messages: "argument 2 (pinned)". Throws DeviceError if no device
  /// remains.
  void restrict_to(const Scope& there, const std::string& what);
  void restrict_to(const std::vector<Backend>& backends, const std::string& what);
  /// Adds data of the task. The task is placed on the possible device with most of its bytes.
  void add_data_on(Device device, std::size_t bytes) {
    if (data_.empty())
      data_.push_back({device, bytes});
    else if (data_[0].device == device)
      data_[0].bytes += bytes;
    else
      add_data_on_other(device, bytes);
  }
  /// Adds the size of an array, for policies.
  void add_bytes(std::uint64_t bytes) noexcept { bytes_ += bytes; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t bytes_on(Device device) const noexcept;
  /// Returns the possible device that has most of the task's data. If there is no data, returns the device that
  /// finishes the task first. Without a scope, returns the device with most of the task's data, or cpu:0.
  Device choose() const {
    if (has_no_scope() && (data_.empty() || (data_.size() == 1 && data_[0].device == Device{}))) return Device{};
    return choose_of_several();
  }
  /// Returns the possible devices of the same backend, including the chosen one. Returns an empty list if there is no
  /// other device, or if the backend is built in.
  std::vector<Device> interchangeable_with(Device chosen) const;

 private:
  struct DeviceBytes {
    Device device;
    std::size_t bytes;
  };
  static const Scope& default_scope();
  bool has_no_scope() const noexcept { return declared_scope_ == nullptr && !narrowed_scope_; }
  void add_data_on_other(Device device, std::size_t bytes);
  const DeviceBytes* most_data() const noexcept;
  Device choose_of_several() const;

  bool unsaid_ = false;
  const Scope* declared_scope_;            // outlives this object; null: cpu:0
  std::optional<Scope> narrowed_scope_{};  // set by restrict_to()
  InlineVector<DeviceBytes, 4> data_;
  std::uint64_t bytes_ = 0;
};

/// Returns "file:line", the default name of tasks.
std::string name_of_location(const std::source_location& where);
/// True with TESSERA_TASKS=serial. Each task then runs when it is created.
bool tasks_are_serial();
/// Returns the group for tasks outside of regions that the calling thread creates for this device.
executor::Group& plain_tasks(Device device);

class TaskNode : public executor::Node {
 public:
  /// Starts with two references: one for the handle and one for submission.
  TaskNode(executor::Group& group, Device device, std::shared_ptr<const InheritedOptions> options,
           const TaskOptions& call_options, std::string kernel_name);
  ~TaskNode() override;

  std::string name() const override;
  /// The name that the user set. Empty if the task is named after its source location.
  std::string_view explicit_name() const noexcept;
  const std::source_location& where() const noexcept { return where_; }
  const void* kind() const noexcept final { return &kind_; }
  /// Converts a node to a task. Returns null if the node is not a task.
  static const TaskNode* from(const Node* node) noexcept {
    return node != nullptr && node->kind() == &kind_ ? static_cast<const TaskNode*>(node) : nullptr;
  }
  static TaskNode* from(Node* node) noexcept { return const_cast<TaskNode*>(from(const_cast<const Node*>(node))); }
  Device device() const noexcept { return device_.load(std::memory_order_relaxed); }
  /// Called before submission. When the task begins, it may move to one of these devices if it finishes earlier there
  /// (dispatch_limit.h).
  void set_migration_targets(std::vector<Device> devices);
  /// Called before set_migration_targets(). Counts the task in the load of its device.
  void track_load();
  /// Called before submission. `data` is destroyed with the task.
  void attach(TaskData& data) noexcept { data_ = &data; }
  TaskData* data() const noexcept { return data_; }
  /// Returns memory inside the task for its data (InlineAccessStorage), or null if there is none.
  virtual std::byte* inline_storage() noexcept { return nullptr; }
  /// Returns the data of the nearest ancestor task that has data. Returns null after this task has ended.
  TaskData* outer_data() const noexcept { return outer_ ? outer_->data_ : nullptr; }
  void after(Node& predecessor, Dependency kind = Dependency::result, Maker maker = Maker::this_thread) {
    trace_dependency(predecessor, kind);
    Node::after(predecessor, kind, maker);
  }
  /// Records a dependency on `predecessor` in traces. The predecessor may have ended.
  void trace_dependency(const Node& predecessor, Dependency kind) const noexcept {
    if (trace_id_ != 0) [[unlikely]]
      tracing::comes_after(*this, predecessor, kind);
  }
  /// The task's number in traces (trace_hooks.h), or 0 if it was created without tracing.
  std::uint64_t trace_id() const noexcept { return trace_id_; }
  /// Stop is requested by the token in the options and by `Task::cancel`.
  StopToken stop_token();
  bool cancel_task() noexcept;
  /// Submits the task and takes over one reference. With TESSERA_TASKS=serial, the task has ended when this function
  /// returns.
  void submit_task();
  int priority() const noexcept { return options_ ? options_->priority : 0; }
  /// Called when the event after the task's work on the device has completed. `error` is set if it failed.
  void end_on_device(std::exception_ptr error) noexcept;

  static TaskNode* current() noexcept;

 protected:
  Completion run() final;
  bool try_acquire_resources() noexcept override {
    return (data_ == nullptr || data_->acquire_commute_locks(*this)) && acquire_dispatch_slot();
  }
  void waits() noexcept override;
  void done() noexcept override;
  virtual void call() = 0;
  /// Called before submission, for tasks of the CPU: after call(), start_later() is called, and then another thread
  /// calls end().
  void end_later() noexcept { set_ends_later(); }
  /// Nothing uses the node or its data after this function has returned.
  virtual void start_later() {}
  /// Called by the destructor of the class that owns the inline storage.
  void forget_data() noexcept {
    if (data_ != nullptr) std::exchange(data_, nullptr)->destroy();
  }

 private:
  static const char kind_;  // in the library: one address, also for programs that hide inline variables
  struct Stop;
  friend class DispatchLimit;
  Completion run_on(Device device);
  Completion end_of_device_work(Device device);
  bool acquire_dispatch_slot() noexcept;
  const TaskNode* failed_before() const noexcept;
  bool chain_on_device(TaskNode& on_device, Dependency kind);
  void release_device_successors();
  void migrate_to(Device device) noexcept;

  struct LoadEntry;  // load_entry.h
  LoadEntry* load_entry() const noexcept;
  struct Extra;  // data that most tasks do not need
  Extra& extra();

  std::shared_ptr<const InheritedOptions> options_;
  std::atomic<Device> device_;  // changes at most once, when the task begins
  std::uint64_t trace_id_ = 0;
  std::source_location where_;
  TaskData* data_ = nullptr;
  executor::Ref<TaskNode> outer_;
  detail::Owner<Extra> extra_;  // created before submission
};

/// A task that is not submitted yet. The destructor cancels and submits it, so that its group is notified of its end.
class TaskDraft {
 public:
  explicit TaskDraft(executor::Ref<TaskNode> node) noexcept : node_(std::move(node)) {}
  TaskDraft(TaskDraft&&) = default;
  TaskDraft& operator=(TaskDraft&&) = delete;
  ~TaskDraft() {
    if (!node_) return;
    node_->cancel();
    node_->submit();
  }
  TaskNode& operator*() const noexcept { return *node_; }
  TaskNode* operator->() const noexcept { return node_.get(); }
  void submit() { node_.release()->submit_task(); }

 private:
  executor::Ref<TaskNode> node_;
};

/// Ends `node` when `event` completes. If the event has an error, the node fails with it. Each device has one thread
/// for this.
void end_after(Device device, Event event, executor::Ref<TaskNode> node);

}  // namespace detail
}  // namespace tessera
