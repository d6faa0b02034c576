// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/task_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <mutex>
#include <stop_token>

#include "tessera/base/config.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/memory/storage.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/executor/executor.h"
#include "tessera/task/device_load.h"
#include "tessera/task/dispatch_limit.h"
#include "tessera/task/load_entry.h"
#include "tessera/task/running_task.h"
#include "tessera/task/trace_hooks.h"

namespace tessera::detail {

const char TaskNode::kind_ = 0;

namespace {

struct Setting {
  Setting() {}  // prevents aggregate initialisation from the pointer to the parent process's object
  const bool serial = config::choice("TESSERA_TASKS", {"serial", "parallel"}) == std::size_t{0};
};
constinit os::PerProcess<Setting> setting;

std::string existing() { return "Devices that exist: " + existing_devices(); }

}  // namespace

// --- Placement

const Scope& TaskPlacer::default_scope() {
  static const Scope& cpu = *new Scope();
  return cpu;
}

void TaskPlacer::restrict_to(const Scope& there, const std::string& what) {
  if (unsaid_) {
    narrowed_scope_ = there;
    unsaid_ = false;
    return;
  }
  std::vector<Device> both;
  std::ranges::set_intersection(scope().devices(), there.devices(), std::back_inserter(both));
  if (both.empty())
    fail<DeviceError>({.operation = "spawn",
                       .with = {{"scope", to_string(scope())}, {what, to_string(there)}},
                       .wrong = "the two have no device in common, so the task cannot run",
                       .remedy = "Widen the scope. " + existing()});
  narrowed_scope_ = Scope(std::move(both));
}

void TaskPlacer::restrict_to(const std::vector<Backend>& backends, const std::string& what) {
  const DeviceBytes* const most = most_data();
  if (unsaid_ && most != nullptr && std::ranges::find(backends, most->device.backend) != backends.end()) return;
  std::vector<Device> some;
  for (const Device d : scope().devices())
    if (std::ranges::find(backends, d.backend) != backends.end()) some.push_back(d);
  if (some.empty()) {
    std::string names;
    for (const Backend b : backends) names += fmt::format("{}{}", names.empty() ? "" : ", ", backend_name(b));
    fail<DeviceError>({.operation = "spawn",
                       .with = {{"scope", to_string(scope())}, {what, names}},
                       .wrong = "the function has no variant for any device of the scope",
                       .remedy = "Add a variant, or widen the scope. " + existing()});
  }
  narrowed_scope_ = Scope(std::move(some));
  unsaid_ = false;
}

void TaskPlacer::add_data_on_other(Device device, std::size_t bytes) {
  const auto at = std::ranges::find(data_, device, &DeviceBytes::device);
  if (at == data_.end())
    data_.push_back({device, bytes});
  else
    at->bytes += bytes;
}

std::uint64_t TaskPlacer::bytes_on(Device device) const noexcept {
  const auto at = std::ranges::find(data_, device, &DeviceBytes::device);
  return at == data_.end() ? 0 : at->bytes;
}

const TaskPlacer::DeviceBytes* TaskPlacer::most_data() const noexcept {
  return data_.empty() ? nullptr : &*std::ranges::max_element(data_, {}, &DeviceBytes::bytes);
}

Device TaskPlacer::choose_of_several() const {
  const auto& devices = scope().devices();
  if (devices.empty())
    fail<ArgumentError>({.operation = "spawn",
                         .with = {{"scope", to_string(scope())}},
                         .wrong = "all devices of the scope belong to other ranks",
                         .remedy = "Submit the task to a Region, on all ranks"});
  if (data_.size() == 1 && devices.front() == data_[0].device) return data_[0].device;
  const DeviceBytes* const most = most_data();
  if (most != nullptr && (unsaid_ || scope().contains(most->device))) return most->device;
  if (devices.size() == 1) return devices.front();
  return least_loaded(devices);
}

std::vector<Device> TaskPlacer::interchangeable_with(Device chosen) const {
  std::vector<Device> alike;
  if (is_built_in(chosen.backend) || !scope().contains(chosen)) return alike;
  for (const Device d : scope().devices())
    if (d.backend == chosen.backend) alike.push_back(d);
  if (alike.size() == 1) alike.clear();
  return alike;
}

MissingData TaskData::missing_on(Device) const { return {}; }

// --- The node

struct TaskNode::Stop {
  struct Cancel {
    TaskNode* node;
    void operator()() const noexcept {
      const executor::NodeRef held(*node);  // cancelling may end the task and drop its last reference
      node->cancel_task();
    }
  };
  std::stop_source source;
  std::optional<std::stop_callback<Cancel>> outside;
};

/// The work of a task on its device. Successors that were queued behind it may be the first to observe its failure.
struct DeviceWork {
  explicit DeviceWork(QueueUse work) : use(std::move(work)) {}
  ~DeviceWork() {
    if (use.queue->device().gone()) QueueCore::leave(std::move(use.event));
  }
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
  std::exception_ptr failure() const noexcept { return use.queue->failure_of(use); }
  QueueUse use;
};

struct TaskNode::Extra {
  std::optional<const InheritedContext> context;
  std::optional<LoadEntry> load_entry;
  std::string name;  // empty if the task is named after its location
  std::unique_ptr<Stop> stop;
  std::optional<const DeviceWork> work;  // set until the work has ended

  static void* operator new(std::size_t bytes) { return executor::slab::allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { executor::slab::deallocate(memory, bytes); }
};
TaskNode::Extra& TaskNode::extra() {
  if (!extra_) extra_ = detail::Owner<Extra>(new Extra);
  return *extra_;
}

TaskNode::TaskNode(executor::Group& group, Device device, std::shared_ptr<const InheritedOptions> options,
                   const TaskOptions& call_options, std::string kernel_name)
    : Node(group, 2), options_(std::move(options)), device_(device), where_(call_options.where) {
  if (thread_context.device || thread_context.placement != nullptr || thread_context.mode != nullptr)
    extra().context.emplace(InheritedContext::of_this_thread_without_queue());
  if (TaskNode* const maker = current())
    outer_ = maker->data_ != nullptr ? executor::Ref<TaskNode>(*maker) : maker->outer_;
  if (RunningTask* const running = RunningTask::current()) running->release();
  if (!call_options.name.empty())
    extra().name = call_options.name;
  else if (!kernel_name.empty())
    extra().name = std::move(kernel_name);
  if (options_) {
    if (options_->priority != 0) set_priority(options_->priority);
    if (options_->stop) {
      extra().stop = std::make_unique<Stop>();
      extra().stop->outside.emplace(*options_->stop, Stop::Cancel{this});
    }
  }
  if (tracing::maybe_enabled()) [[unlikely]]
    trace_id_ = tracing::made(*this);
}

TaskNode::LoadEntry* TaskNode::load_entry() const noexcept {
  return extra_ && extra_->load_entry ? &*extra_->load_entry : nullptr;
}
void TaskNode::track_load() {
  extra().load_entry.emplace(&DeviceLoad::of(device()));
  extra_->load_entry->load->place();
  if (!is_built_in(device().backend)) gate();
}
void TaskNode::set_migration_targets(std::vector<Device> devices) { extra_->load_entry->others = std::move(devices); }

TaskNode::~TaskNode() {
  if (trace_id_ != 0) [[unlikely]]
    tracing::gone(*this);
}

std::string TaskNode::name() const {
  return !explicit_name().empty() ? std::string(explicit_name()) : name_of_location(where_);
}
std::string_view TaskNode::explicit_name() const noexcept {
  return extra_ ? std::string_view(extra_->name) : std::string_view();
}

std::string name_of_location(const std::source_location& where) {
  const std::string_view file = where.file_name();
  return fmt::format("{}:{}", file.substr(file.find_last_of("/\\") + 1), where.line());
}

StopToken TaskNode::stop_token() {
  if (!extra().stop) extra_->stop = std::make_unique<Stop>();
  return extra_->stop->source.get_token();
}

bool TaskNode::cancel_task() noexcept {
  const bool before_it_began = cancel();
  if (extra_ && extra_->stop) extra_->stop->source.request_stop();
  return before_it_began;
}

bool tasks_are_serial() { return setting->serial; }

void TaskNode::submit_task() {
  // Releases arrays that were used to evaluate the arguments.
  if (RunningTask* const running = RunningTask::current()) running->release();
  if (setting->serial) {
    const auto given = executor::Ref<TaskNode>::adopt(this);
    return submit_here();
  }
  if (is_built_in(device().backend)) return submit_and_release();
  const auto given = executor::Ref<TaskNode>::adopt(this);
  submit();
  // Predecessors may have been handed to the device before this task was submitted.
  if (state() != State::waiting) return;
  for (const executor::NodeRef& p : predecessors())
    if (TaskNode* const task = from(p.get())) task->release_device_successors();
}

/// Queues this task behind `on_device`, which has not ended yet, on the same device. Returns false if this is not
/// possible.
bool TaskNode::chain_on_device(TaskNode& on_device, Dependency kind) {
  LoadEntry* const mine = load_entry();
  if (mine == nullptr || is_built_in(device().backend)) return false;
  const Device there = on_device.device();
  const std::lock_guard hold(mine->lock);
  if (!mine->others.empty() && data_ != nullptr && data_->can_migrate()) {
    // A task that may migrate is only queued here if this is its best device and all of its predecessors are on it.
    std::vector<executor::Ref<TaskNode>> extra_predecessors;
    for (const executor::NodeRef& p : predecessors()) {
      TaskNode* const task = from(p.get());
      const LoadEntry* const theirs = task != nullptr ? task->load_entry() : nullptr;
      if (theirs == nullptr || !theirs->on_device || task->device() != there) return false;
      if (task != &on_device) extra_predecessors.emplace_back(*task);
    }
    if (std::ranges::find(mine->others, there) == mine->others.end()) return false;
    const Device best = earliest(
        there, mine->others, [](Device d) { return DeviceLoad::of(d).begun(); },
        [&](Device d) { return data_->missing_on(d); });
    if (best != there) return false;
    mine->others.clear();
    migrate_to(there);
    const std::lock_guard theirs(on_device.load_entry()->lock);
    auto& more = on_device.load_entry()->extra_predecessors;
    more.insert(more.end(), extra_predecessors.begin(), extra_predecessors.end());
  }
  if (device() != there) return false;
  mine->chained_predecessors.push_back({executor::Ref<TaskNode>(on_device), kind});
  return true;
}

void TaskNode::release_device_successors() {
  LoadEntry* const mine = load_entry();
  if (mine == nullptr || !mine->on_device.load(std::memory_order_acquire)) return;
  release_successors([](Node& self, Node& successor, Dependency kind) {
    TaskNode* const task = from(&successor);
    try {
      return task != nullptr && task->chain_on_device(static_cast<TaskNode&>(self), kind);
    } catch (const std::exception&) {  // out of memory: wait for its end
      return false;
    }
  });
  std::vector<executor::Ref<TaskNode>> extra_predecessors;
  {
    const std::lock_guard hold(mine->lock);
    extra_predecessors.swap(mine->extra_predecessors);
  }
  for (const executor::Ref<TaskNode>& p : extra_predecessors) p->release_device_successors();
}

TaskNode* TaskNode::current() noexcept { return const_cast<TaskNode*>(from(executor::Executor::current())); }

executor::Group& plain_tasks(Device device) {
  if (const TaskNode* const maker = TaskNode::current()) {
    TaskData* const data = maker->data() != nullptr ? maker->data() : maker->outer_data();
    if (executor::Group* const tasks = data != nullptr ? data->tasks() : nullptr) return *tasks;
  }
  return DeviceTasks::of(device);
}

bool TaskNode::acquire_dispatch_slot() noexcept {
  if (load_entry() == nullptr || is_built_in(device().backend)) return true;
  return failure() || stop_requested() || DispatchLimit::try_acquire(*this);  // a task that will not run needs no slot
}
void TaskNode::waits() noexcept {
  if (load_entry() != nullptr) DispatchLimit::release(*this);  // the task that it waits for may need the slot
}

/// Called only before the task begins.
void TaskNode::migrate_to(Device other) noexcept {
  if (other == device()) return;
  LoadEntry& mine = *load_entry();
  mine.load->leave();
  mine.load = &DeviceLoad::of(other);
  mine.load->place();
  device_.store(other, std::memory_order_relaxed);
}

/// Returns a chained predecessor that has failed and whose result is needed, or null if there is none so far.
const TaskNode* TaskNode::failed_before() const noexcept {
  if (const LoadEntry* const mine = load_entry())
    for (const LoadEntry::Before& p : mine->chained_predecessors)
      if (p.kind == Dependency::result && p.node->ended() && p.node->failure()) return p.node.get();
  return nullptr;
}

executor::Node::Completion TaskNode::run() {
  const Device device = this->device();
  if (!extra_ || !extra_->load_entry || extra_->load_entry->chained_predecessors.empty()) [[likely]]
    return run_on(device);
  if (const TaskNode* const failed = failed_before()) return end_without(*failed), Completion::later;
  try {
    return run_on(device);
  } catch (...) {
    extra_->load_entry->error =
        std::current_exception();  // may be caused by a chained predecessor that has not ended yet
    end_after(device, Event(), executor::Ref<TaskNode>(*this));
    return Completion::later;
  }
}

executor::Node::Completion TaskNode::run_on(Device device) {
  LoadEntry* const load_entry = this->load_entry();
  if (load_entry != nullptr) {
    load_entry->begun = load_clock();
    load_entry->load->begin();
  }
  if (trace_id_ != 0) [[unlikely]]
    tracing::begins(*this);
  struct Options {
    const InheritedOptions* const before = inherited_options;
    explicit Options(const InheritedOptions* mine) { inherited_options = mine; }
    ~Options() { inherited_options = before; }
  } in_force(options_.get());
  static const InheritedContext nothing;
  const InheritedContext::Scope context(extra_ && extra_->context ? *extra_->context : nothing);
  thread_context.device = device;
  thread_context.queues_of_thread = true;
  RunningTask running;
  if (data_ != nullptr) data_->begin();
  if (load_entry != nullptr) load_entry->begun = load_clock();
  if (data_ == nullptr) {
    call();
  } else {
    try {
      call();
    } catch (...) {
      data_->finish();
      throw;
    }
    data_->finish();
  }
  running.release();  // chained successors may begin now
  if (!is_built_in(device.backend)) return end_of_device_work(device);
  if (!ends_later()) [[likely]]
    return Completion::now;
  if (trace_id_ != 0) [[unlikely]]
    tracing::function_returned(*this);
  start_later();
  return Completion::later;
}

executor::Node::Completion TaskNode::end_of_device_work(Device device) {
  Queue& queue = current_queue(device);
  extra_->work.emplace(queue.core().recorded());
  Event event = queue.record();
  if (extra_->load_entry->chained_predecessors.empty() && event.done()) {
    event.wait();  // throws if the work failed
    if (const std::exception_ptr error = extra_->work->failure()) std::rethrow_exception(error);
    extra_->work.reset();
    return Completion::now;
  }
  if (trace_id_ != 0) [[unlikely]]
    tracing::function_returned(*this);
  if (data_ != nullptr) data_->handed_to_device();
  const executor::Ref<TaskNode> held(*this);  // the next call may end the task
  end_after(device, std::move(event), held);
  extra_->load_entry->on_device.store(true, std::memory_order_release);
  release_device_successors();
  return Completion::later;
}

void TaskNode::end_on_device(std::exception_ptr error) noexcept {
  // The chained predecessors have ended, because their events precede the event of this task.
  if (const TaskNode* const failed = failed_before()) return end_without(*failed);
  if (!error && extra_->work) error = extra_->work->failure();
  end(extra_->load_entry->error ? extra_->load_entry->error : std::move(error));
}

void TaskNode::done() noexcept {
  if (trace_id_ != 0) [[unlikely]]
    tracing::ends(*this);
  if (data_ != nullptr) data_->end(failure().get());  // not in the destructor, because successors keep the node alive
  outer_ = {};
  if (!extra_) return;
  extra_->work.reset();
  if (extra_->load_entry) {
    if (extra_->load_entry->begun != 0) extra_->load_entry->load->end(extra_->load_entry->begun);
    extra_->load_entry->load->leave();
    extra_->load_entry->chained_predecessors.clear();
    DispatchLimit::release(*this);
  }
  if (extra_->stop) extra_->stop->outside.reset();
}

}  // namespace tessera::detail
