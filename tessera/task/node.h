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
#include <vector>

#include "tessera/base/inline_vector.h"
#include "tessera/device/context.h"
#include "tessera/device/storage.h"
#include "tessera/executor/executor.h"
#include "tessera/task/error.h"
#include "tessera/task/load.h"
#include "tessera/task/options.h"
#include "tessera/task/recording.h"

namespace tessera {

namespace detail {

/// What a task does to data: attached to it before it is submitted, by whoever orders tasks by their accesses. It may
/// make the task come after others (`TaskNode::after`).
class TaskData {
 public:
  virtual ~TaskData() = default;
  /// On the submitter, last: makes the task come after others (`TaskNode::after`).
  virtual void order() {}
  /// On the thread that runs the task, before its function; what it throws fails the task.
  virtual void begin() {}
  /// Where plain tasks go that the task makes: it ends after them. Null once it has ended.
  virtual executor::Group* tasks() { return nullptr; }
  /// On that thread, after its function, also if that threw. What this throws fails the task.
  virtual void finish() {}
  /// Whether the task may begin on another device than it was placed on: nobody has relied on that.
  virtual bool may_move() const { return false; }
  /// What would have to be copied to begin there.
  virtual Missing missing_on(Device) const { return {}; }
  /// Of a gated task whose predecessors have ended: executor::Node::admitted.
  virtual bool take_turns(executor::Node&) noexcept { return true; }
  /// The task has run, failed, or was skipped or cancelled; nobody was told yet.
  virtual void end(const executor::Failure*) noexcept {}
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
/// The first error that nobody has asked for, of tasks on these devices; null if there is none.
executor::FailureRef unasked_failure(std::span<const Device> devices);

/// Where a task may run, narrowed down by its function and arguments; and then where it does.
class Placing {
 public:
  explicit Placing(const OptionsInForce* options);
  /// Nothing was said of where it may run, here or around it.
  bool unsaid() const noexcept { return unsaid_; }
  const Scope& scope() const noexcept { return own_ ? *own_ : *said_; }
  /// Only there: `what` says why, "argument 2 (pinned)". DeviceError if nothing remains.
  void only(const Scope& there, const std::string& what);
  void only(const std::vector<Backend>& backends, const std::string& what);
  /// Where data of the task lies: of the devices on which it may run, it does where most of its bytes are.
  void data_on(Device device, std::size_t bytes);
  /// It is a kernel: if nothing was said of where it runs, that is where its data lies.
  void goes_with_data() noexcept { with_data_ = true; }
  /// The one: where most of its data lies, else the one that is done with it first.
  Device choose() const;
  /// Those of one kind with the chosen one, itself among them; none if that is alone or built in.
  std::vector<Device> others_like(Device chosen) const;

 private:
  struct Held {
    Device device;
    std::size_t bytes;
  };
  bool unsaid_ = false, with_data_ = false;
  const Scope* said_;           // outlives this, unless
  std::optional<Scope> own_{};  // it was narrowed down
  InlineVector<Held, 4> data_;
};

/// Where a plain task of this device goes that the calling thread makes.
executor::Group& plain_tasks(Device device);

class TaskNode : public executor::Node {
 public:
  TaskNode(executor::Group& group, Device device, std::shared_ptr<const OptionsInForce> options,
           const TaskOptions& said, std::string kernel_name);
  ~TaskNode() override;

  std::string name() const override;
  Device device() const noexcept { return device_.load(std::memory_order_relaxed); }
  /// Before it is submitted: when it begins it goes to one of these, if it is done there earlier (earliest, load.h).
  void may_go_to(std::vector<Device> devices) { counted_->others = std::move(devices); }
  /// Before that: it counts for its device's load.
  void count_load();
  /// Before it is submitted.
  void attach(std::shared_ptr<TaskData> data) noexcept { data_ = std::move(data); }
  TaskData* data() const noexcept { return data_.get(); }
  const std::shared_ptr<TaskData>& shared_data() const noexcept { return data_; }
  /// That of the task that made this one, or, if it has none, of the task that made that, and so on.
  const std::shared_ptr<TaskData>& outer_data() const noexcept { return outer_data_; }
  void after(Node& predecessor, Dependency kind = Dependency::result, Maker maker = Maker::this_thread) {
    note_after(predecessor, kind);
    Node::after(predecessor, kind, maker);
  }
  /// For who looks: it comes after that, which may have ended.
  void note_after(const Node& predecessor, Dependency kind) const noexcept {
    if (seen_ != 0) [[unlikely]]
      seeing::comes_after(*this, predecessor, kind);
  }
  /// Its number for who looked when it was made (recording.h), or 0.
  std::uint64_t seen() const noexcept { return seen_; }
  /// Stopped by the options' token and by `Task::cancel`.
  std::stop_token stop_token();
  bool cancel_task() noexcept;
  /// Lets it go; with TESSERA_TASKS=serial it has ended when this returns.
  void submit_task();

  static TaskNode* current() noexcept;

 protected:
  Ends run() final;
  bool admitted() noexcept override { return !data_ || data_->take_turns(*this); }
  void done() noexcept override;
  virtual void call() = 0;

 private:
  struct Stop;
  Ends end_of_device_work(Device device);
  Device settle();

  std::unique_ptr<const InheritedContext> context_;  // null: nothing is inherited
  std::shared_ptr<const OptionsInForce> options_;
  std::atomic<Device> device_;  // changes at most once, when it begins
  struct Counted {
    DeviceLoad* load;
    std::int64_t begun = 0;
    std::vector<Device> others;  // where it may go
  };
  std::unique_ptr<Counted> counted_;  // null for most
  std::uint64_t seen_ = 0;
  std::source_location where_;
  std::unique_ptr<std::string> name_;
  std::shared_ptr<TaskData> data_, outer_data_;
  std::unique_ptr<Stop> stop_;
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
  void submit() {
    const executor::Ref<TaskNode> node = std::move(node_);
    node->submit_task();
  }

 private:
  executor::Ref<TaskNode> node_;
};

/// `node` ends when `event` has, with what that throws: by a thread of the device, of which each has one.
void end_after(Device device, Event event, executor::NodeRef node);

}  // namespace detail
}  // namespace tessera
