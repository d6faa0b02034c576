// SPDX-License-Identifier: Apache-2.0
// A task as the executor runs it: what it inherits, its device, its name, its end. Internal; regions build on it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/inline_vector.h"
#include "tessera/device/context.h"
#include "tessera/device/memory/storage.h"
#include "tessera/executor/executor.h"
#include "tessera/task/device_load.h"
#include "tessera/task/dispatch_limit.h"
#include "tessera/task/error.h"
#include "tessera/task/options.h"
#include "tessera/task/trace_hooks.h"

namespace tessera {

namespace detail {

/// What a task does to data: attached to it before it is submitted, by whoever orders tasks by their accesses. It may
/// make the task come after others (`TaskNode::after`).
class TaskData {
 public:
  /// On the submitter, last: makes the task come after others (`TaskNode::after`).
  virtual void order() {}
  /// On the thread that runs the task, before its function; what it throws fails the task.
  virtual void begin() {}
  /// Where plain tasks go that the task makes: it ends after them. Null once it has ended.
  virtual executor::Group* tasks() { return nullptr; }
  /// On that thread, after its function, also if that threw. What this throws fails the task.
  virtual void finish() {}
  /// Whether the task may begin on another device than it was placed on: nobody has relied on that.
  virtual bool can_migrate() const { return false; }
  /// Its function has returned, and its work is the device's: who comes after it there finds what it wrote.
  virtual void handed_to_device() noexcept {}
  /// What would have to be copied to begin there.
  virtual MissingData missing_on(Device) const { return {}; }
  /// Of a gated task whose predecessors have ended: executor::Node::admitted.
  virtual bool acquire_commute_locks(executor::Node&) noexcept { return true; }
  /// The task has run, failed, or was skipped or cancelled; nobody was told yet.
  virtual void end(const executor::Failure*) noexcept {}
  /// The task is destroyed, and so is this.
  virtual void destroy() noexcept = 0;

 protected:
  ~TaskData() = default;
};

/// The plain tasks of one device: an implicit region of the process for all of them. Keeps errors that nobody has asked
/// for. Exists until the process ends.
class DeviceTasks final : public executor::Group {
 public:
  DeviceTasks(executor::Executor& executor, Device device);
  const Device device;
  /// Those of a device; made when they are first asked for.
  static DeviceTasks& of(Device device);
  /// Of the devices that ever had some.
  static std::vector<DeviceTasks*> all();

 protected:
  void failed(const executor::Node& node) noexcept override;
};
/// A task of `group` failed: unless somebody asks for it, it is told when the program ends. Its groups call this.
void remember_failure(const executor::Node& node, Device device) noexcept;
/// Errors that were not thrown yet, of plain tasks on these devices.
std::vector<executor::FailureRef> unreported_failures(std::span<const Device> devices);

/// Where a task may run, narrowed down by its function and arguments; and then where it does.
class TaskPlacer {
 public:
  explicit TaskPlacer(const InheritedOptions* options)
      : unsaid_(options == nullptr || !options->scope), declared_scope_(unsaid_ ? nullptr : &*options->scope) {}
  /// Nothing was said of where it may run, here or around it.
  bool unsaid() const noexcept { return unsaid_; }
  const Scope& scope() const noexcept {
    return narrowed_scope_ ? *narrowed_scope_ : declared_scope_ != nullptr ? *declared_scope_ : default_scope();
  }
  /// It may run on one device only.
  bool one_device() const noexcept { return has_no_scope() || scope().devices().size() == 1; }
  /// Only there: `what` says why, "argument 2 (pinned)". DeviceError if nothing remains.
  void restrict_to(const Scope& there, const std::string& what);
  void restrict_to(const std::vector<Backend>& backends, const std::string& what);
  /// Where data of the task lies: of the devices on which it may run, it does where most of its bytes are.
  void add_data_on(Device device, std::size_t bytes) {
    if (data_.empty())
      data_.push_back({device, bytes});
    else if (data_[0].device == device)
      data_[0].bytes += bytes;
    else
      add_data_on_other(device, bytes);
  }
  /// It has an array of so many bytes, for a policy.
  void add_bytes(std::uint64_t bytes) noexcept { bytes_ += bytes; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t bytes_on(Device device) const noexcept;
  /// Of the devices on which it may run the one where most of its data lies, else the one that is done with it first.
  /// Without a scope that is where most of its data lies, else cpu:0.
  Device choose() const {
    if (has_no_scope() && (data_.empty() || (data_.size() == 1 && data_[0].device == Device{}))) return Device{};
    return choose_of_several();
  }
  /// Those of one kind with the chosen one, itself among them; none if that is alone or built in.
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
  const Scope* declared_scope_;            // outlives this; null: cpu:0
  std::optional<Scope> narrowed_scope_{};  // if it was narrowed down
  InlineVector<DeviceBytes, 4> data_;
  std::uint64_t bytes_ = 0;
};

/// "file:line", as tasks are called of which nothing else was said.
std::string name_of_location(const std::source_location& where);
/// Each task runs where it is made (TESSERA_TASKS=serial).
bool tasks_are_serial();
/// Where a plain task of this device goes that the calling thread makes.
executor::Group& plain_tasks(Device device);

class TaskNode : public executor::Node {
 public:
  /// With two references: one for who asks for its result, one for who lets it go.
  TaskNode(executor::Group& group, Device device, std::shared_ptr<const InheritedOptions> options,
           const TaskOptions& call_options, std::string kernel_name);
  ~TaskNode() override;

  std::string name() const override;
  /// As it was said; empty: it is called by its place.
  std::string_view explicit_name() const noexcept;
  const std::source_location& where() const noexcept { return where_; }
  const void* kind() const noexcept final { return &kind_; }
  /// The task that a node is; null if it is none.
  static const TaskNode* from(const Node* node) noexcept {
    return node != nullptr && node->kind() == &kind_ ? static_cast<const TaskNode*>(node) : nullptr;
  }
  static TaskNode* from(Node* node) noexcept { return const_cast<TaskNode*>(from(const_cast<const Node*>(node))); }
  Device device() const noexcept { return device_.load(std::memory_order_relaxed); }
  /// Before it is submitted: when it begins it goes to one of these, if it is done there earlier (dispatch_limit.h).
  void set_migration_targets(std::vector<Device> devices);
  /// Before that: it counts for its device's load.
  void track_load();
  /// Before it is submitted. It is destroyed with the task, and ends before.
  void attach(TaskData& data) noexcept { data_ = &data; }
  TaskData* data() const noexcept { return data_; }
  /// Memory of the task for its data (InlineAccessStorage); null: none.
  virtual std::byte* inline_storage() noexcept { return nullptr; }
  /// That of the task that made this one, or, if it has none, of the task that made that, and so on; null once this
  /// has ended.
  TaskData* outer_data() const noexcept { return outer_ ? outer_->data_ : nullptr; }
  void after(Node& predecessor, Dependency kind = Dependency::result, Maker maker = Maker::this_thread) {
    trace_dependency(predecessor, kind);
    Node::after(predecessor, kind, maker);
  }
  /// For who looks: it comes after that, which may have ended.
  void trace_dependency(const Node& predecessor, Dependency kind) const noexcept {
    if (trace_id_ != 0) [[unlikely]]
      tracing::comes_after(*this, predecessor, kind);
  }
  /// Its number for who looked when it was made (recording.h), or 0.
  std::uint64_t trace_id() const noexcept { return trace_id_; }
  /// Stopped by the options' token and by `Task::cancel`.
  std::stop_token stop_token();
  bool cancel_task() noexcept;
  /// Lets it go; with TESSERA_TASKS=serial it has ended when this returns. Takes over a reference of the caller's.
  void submit_task();
  int priority() const noexcept { return options_ ? options_->priority : 0; }
  /// The event of its work on the device has come, with an error perhaps.
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
  /// By the destructor of who has the room.
  void forget_data() noexcept {
    if (data_ != nullptr) std::exchange(data_, nullptr)->destroy();
  }

 private:
  static constexpr char kind_ = 0;
  struct Stop;
  friend class DispatchLimit;
  Completion run_on(Device device);
  Completion end_of_device_work(Device device);
  bool acquire_dispatch_slot() noexcept;
  const TaskNode* failed_before() const noexcept;
  bool chain_on_device(TaskNode& on_device, Dependency kind);
  void release_device_successors();
  void migrate_to(Device device) noexcept;

  struct Before {
    executor::Ref<TaskNode> node;
    Dependency kind;
  };
  struct LoadEntry {
    explicit LoadEntry(DeviceLoad* l) : load(l) {}
    DeviceLoad* load;
    std::int64_t begun = 0;
    std::vector<Device> others;                               // where it may go
    bool place = false;                                       // among those that are put into the queue (Ahead)
    std::atomic<bool> on_device = false;                      // it has been put there
    std::mutex lock;                                          // of what others say of it before it begins:
    std::vector<Before> chained_predecessors;                 // on this device, and it did not wait for their end
    std::vector<executor::Ref<TaskNode>> extra_predecessors;  // what its followers come after, beside it
    std::exception_ptr error;                                 // of its function, if those are to end before it
  };
  LoadEntry* load_entry() const noexcept;
  struct Extra;  // what most tasks have none of
  struct DropExtra {
    void operator()(Extra* extra) const noexcept;
  };
  Extra& extra();

  std::shared_ptr<const InheritedOptions> options_;
  std::atomic<Device> device_;  // changes at most once, when it begins
  std::uint64_t trace_id_ = 0;
  std::source_location where_;
  TaskData* data_ = nullptr;
  executor::Ref<TaskNode> outer_;
  std::unique_ptr<Extra, DropExtra> extra_;  // made before it is submitted
};

/// A node that is made and not yet on its way: its group cancels it if its maker does not come so far.
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

/// `node` ends when `event` has, with what that throws: by a thread of the device, of which each has one.
void end_after(Device device, Event event, executor::Ref<TaskNode> node);

}  // namespace detail
}  // namespace tessera
