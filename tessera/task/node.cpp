// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/config.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/memory/storage.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/task/running_task.h"

namespace tessera::detail {

namespace {

struct Setting {
  Setting() {}  // no aggregate, which a pointer to the parent's would make
  const bool serial = config::choice("TESSERA_TASKS", {"serial", "parallel"}) == std::size_t{0};
};
constinit os::PerProcess<Setting> setting;

std::string existing() { return "Devices that exist: " + existing_devices(); }

}  // namespace

// --- Where
// --------------------------------------------------------------------------------------------------------------

const Scope& Placing::usual_scope() {
  static const Scope& cpu = *new Scope();
  return cpu;
}

void Placing::only(const Scope& there, const std::string& what) {
  if (unsaid_) {
    own_ = there;
    unsaid_ = false;
    return;
  }
  std::vector<Device> both;
  std::ranges::set_intersection(scope().devices(), there.devices(), std::back_inserter(both));
  if (both.empty())
    fail<DeviceError>({.asked = "spawn",
                       .with = {{"scope", to_string(scope())}, {what, to_string(there)}},
                       .wrong = "no device is in both, so the task can run nowhere",
                       .todo = "Widen the scope; " + existing()});
  own_ = Scope(std::move(both));
}

void Placing::only(const std::vector<Backend>& backends, const std::string& what) {
  const Held* const most = most_data();
  if (unsaid_ && most != nullptr && std::ranges::find(backends, most->device.backend) != backends.end()) return;
  std::vector<Device> some;
  for (const Device d : scope().devices())
    if (std::ranges::find(backends, d.backend) != backends.end()) some.push_back(d);
  if (some.empty()) {
    std::string names;
    for (const Backend b : backends) names += fmt::format("{}{}", names.empty() ? "" : ", ", backend_name(b));
    fail<DeviceError>({.asked = "spawn",
                       .with = {{"scope", to_string(scope())}, {what, names}},
                       .wrong = "the function has no variant for any device of the scope",
                       .todo = "Add a variant, or widen the scope; " + existing()});
  }
  own_ = Scope(std::move(some));
  unsaid_ = false;
}

void Placing::data_on_another(Device device, std::size_t bytes) {
  const auto at = std::ranges::find(data_, device, &Held::device);
  if (at == data_.end())
    data_.push_back({device, bytes});
  else
    at->bytes += bytes;
}

std::uint64_t Placing::bytes_on(Device device) const noexcept {
  const auto at = std::ranges::find(data_, device, &Held::device);
  return at == data_.end() ? 0 : at->bytes;
}

const Placing::Held* Placing::most_data() const noexcept {
  return data_.empty() ? nullptr : &*std::ranges::max_element(data_, {}, &Held::bytes);
}

Device Placing::choose_of_several() const {
  const auto& devices = scope().devices();
  if (data_.size() == 1 && devices.front() == data_[0].device) return data_[0].device;
  const Held* const most = most_data();
  if (most != nullptr && (unsaid_ || scope().contains(most->device))) return most->device;
  if (devices.size() == 1) return devices.front();
  return least_loaded(devices);
}

std::vector<Device> Placing::others_like(Device chosen) const {
  std::vector<Device> alike;
  if (is_built_in(chosen.backend) || !scope().contains(chosen)) return alike;
  for (const Device d : scope().devices())
    if (d.backend == chosen.backend) alike.push_back(d);
  if (alike.size() == 1) alike.clear();
  return alike;
}

// --- The node
// -------------------------------------------------------------------------------------------------------------

struct TaskNode::Stop {
  struct Cancel {
    TaskNode* node;
    void operator()() const noexcept {
      const executor::NodeRef held(*node);  // it may end by this, and nobody else need hold it then
      node->cancel_task();
    }
  };
  std::stop_source source;
  std::optional<std::stop_callback<Cancel>> outside;
};

/// A task's work on a device. Somebody else may be told first of what it failed with: who was put in behind it, and
/// waits for what it wrote.
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
  std::optional<Counted> counted;
  std::string name;  // empty: by the place
  std::unique_ptr<Stop> stop;
  std::optional<const DeviceWork> work;  // while it is under way

  static void* operator new(std::size_t bytes) { return executor::slab::take(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { executor::slab::give(memory, bytes); }
};
void TaskNode::DropExtra::operator()(Extra* extra) const noexcept { delete extra; }
TaskNode::Extra& TaskNode::extra() {
  if (!extra_) extra_.reset(new Extra);
  return *extra_;
}

TaskNode::TaskNode(executor::Group& group, Device device, std::shared_ptr<const OptionsInForce> options,
                   const TaskOptions& said, std::string kernel_name)
    : Node(group, 2), options_(std::move(options)), device_(device), where_(said.where) {
  if (thread_context.device || thread_context.placement != nullptr || thread_context.mode != nullptr)
    extra().context.emplace(InheritedContext::of_this_thread_without_queue());
  if (TaskNode* const maker = current())
    outer_ = maker->data_ != nullptr ? executor::Ref<TaskNode>(*maker) : maker->outer_;
  if (RunningTask* const running = RunningTask::current()) running->release();
  if (!said.name.empty())
    extra().name = said.name;
  else if (!kernel_name.empty())
    extra().name = std::move(kernel_name);
  if (options_) {
    if (options_->priority != 0) set_priority(options_->priority);
    if (options_->stop) {
      extra().stop = std::make_unique<Stop>();
      extra().stop->outside.emplace(*options_->stop, Stop::Cancel{this});
    }
  }
  if (seeing::maybe()) [[unlikely]]
    seen_ = seeing::made(*this);
}

TaskNode::Counted* TaskNode::counted() const noexcept {
  return extra_ && extra_->counted ? &*extra_->counted : nullptr;
}
void TaskNode::count_load() {
  extra().counted.emplace(&DeviceLoad::of(device()));
  extra_->counted->load->place();
  if (!is_built_in(device().backend)) gate();
}
void TaskNode::may_go_to(std::vector<Device> devices) { extra_->counted->others = std::move(devices); }

TaskNode::~TaskNode() {
  if (seen_ != 0) [[unlikely]]
    seeing::gone(*this);
}

std::string TaskNode::name() const { return !said_name().empty() ? std::string(said_name()) : name_of_place(where_); }
std::string_view TaskNode::said_name() const noexcept {
  return extra_ ? std::string_view(extra_->name) : std::string_view();
}

std::string name_of_place(const std::source_location& where) {
  const std::string_view file = where.file_name();
  return fmt::format("{}:{}", file.substr(file.find_last_of("/\\") + 1), where.line());
}

std::stop_token TaskNode::stop_token() {
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
  if (RunningTask* const running = RunningTask::current()) running->release();  // what evaluating arguments used
  if (setting->serial) {
    const auto given = executor::Ref<TaskNode>::adopt(this);
    return submit_here();
  }
  if (is_built_in(device().backend)) return submit_given();
  const auto given = executor::Ref<TaskNode>::adopt(this);
  submit();
  // What it comes after may have gone to the device before this was there.
  if (state() != State::waiting) return;
  for (const executor::NodeRef& p : predecessors())
    if (TaskNode* const task = from(p.get())) task->let_followers_go();
}

/// Now, before `on_device` has ended, it may go into the queue behind that.
bool TaskNode::follows(TaskNode& on_device, Dependency kind) {
  Counted* const mine = counted();
  if (mine == nullptr || is_built_in(device().backend)) return false;
  const Device there = on_device.device();
  const std::lock_guard hold(mine->lock);
  if (!mine->others.empty() && data_ != nullptr && data_->may_move()) {
    // It need not stay where it was placed: if this is the place, and all that it comes after is here.
    std::vector<executor::Ref<TaskNode>> also;
    for (const executor::NodeRef& p : predecessors()) {
      TaskNode* const task = from(p.get());
      const Counted* const theirs = task != nullptr ? task->counted() : nullptr;
      if (theirs == nullptr || !theirs->on_device || task->device() != there) return false;
      if (task != &on_device) also.emplace_back(*task);
    }
    if (std::ranges::find(mine->others, there) == mine->others.end()) return false;
    const Device best = earliest(
        there, mine->others, [](Device d) { return DeviceLoad::of(d).begun(); },
        [&](Device d) { return data_->missing_on(d); });
    if (best != there) return false;
    mine->others.clear();
    go_to(there);
    const std::lock_guard theirs(on_device.counted()->lock);
    auto& more = on_device.counted()->also;
    more.insert(more.end(), also.begin(), also.end());
  }
  if (device() != there) return false;
  mine->early.push_back({executor::Ref<TaskNode>(on_device), kind});
  return true;
}

void TaskNode::let_followers_go() {
  Counted* const mine = counted();
  if (mine == nullptr || !mine->on_device.load(std::memory_order_acquire)) return;
  let_go([](Node& self, Node& successor, Dependency kind) {
    TaskNode* const task = from(&successor);
    try {
      return task != nullptr && task->follows(static_cast<TaskNode&>(self), kind);
    } catch (const std::exception&) {  // no memory: it waits for the end
      return false;
    }
  });
  std::vector<executor::Ref<TaskNode>> also;
  {
    const std::lock_guard hold(mine->lock);
    also.swap(mine->also);
  }
  for (const executor::Ref<TaskNode>& p : also) p->let_followers_go();
}

TaskNode* TaskNode::current() noexcept { return const_cast<TaskNode*>(from(executor::Executor::current())); }

executor::Group& plain_tasks(Device device) {
  if (const TaskNode* const maker = TaskNode::current()) {
    TaskData* const data = maker->data() != nullptr ? maker->data() : maker->outer_data();
    if (executor::Group* const tasks = data != nullptr ? data->tasks() : nullptr) return *tasks;
  }
  return DeviceTasks::of(device);
}

bool TaskNode::has_place() noexcept {
  if (counted() == nullptr || is_built_in(device().backend)) return true;
  return failure() || stop_asked() || Ahead::take(*this);  // what does not run needs none
}
void TaskNode::waits() noexcept {
  if (counted() != nullptr) Ahead::give(*this);  // what it waits for may need a place
}

/// Before it begins.
void TaskNode::go_to(Device other) noexcept {
  if (other == device()) return;
  Counted& mine = *counted();
  mine.load->leave();
  mine.load = &DeviceLoad::of(other);
  mine.load->place();
  device_.store(other, std::memory_order_relaxed);
}

/// Of what it came after without waiting, and needs: one that has no result; null if all that have ended have one.
const TaskNode* TaskNode::failed_before() const noexcept {
  if (const Counted* const mine = counted())
    for (const Before& p : mine->early)
      if (p.kind == Dependency::result && p.node->ended() && p.node->failure()) return p.node.get();
  return nullptr;
}

executor::Node::Ends TaskNode::run() {
  const Device device = this->device();
  if (!extra_ || !extra_->counted || extra_->counted->early.empty()) [[likely]]
    return run_on(device);
  if (const TaskNode* const failed = failed_before()) return end_without(*failed), Ends::later;
  try {
    return run_on(device);
  } catch (...) {
    extra_->counted->error = std::current_exception();  // perhaps it is theirs: they are not seen to have ended yet
    end_after(device, Event(), executor::Ref<TaskNode>(*this));
    return Ends::later;
  }
}

executor::Node::Ends TaskNode::run_on(Device device) {
  Counted* const counted = this->counted();
  if (counted != nullptr) {
    counted->begun = load_clock();
    counted->load->begin();
  }
  if (seen_ != 0) [[unlikely]]
    seeing::begins(*this);
  struct Options {
    const OptionsInForce* const before = options_in_force;
    explicit Options(const OptionsInForce* mine) { options_in_force = mine; }
    ~Options() { options_in_force = before; }
  } in_force(options_.get());
  static const InheritedContext nothing;
  const InheritedContext::Scope context(extra_ && extra_->context ? *extra_->context : nothing);
  thread_context.device = device;
  thread_context.queues_of_thread = true;
  RunningTask running;
  if (data_ != nullptr) data_->begin();
  if (counted != nullptr) counted->begun = load_clock();
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
  running.release();  // what follows it on the device may begin now
  return is_built_in(device.backend) ? Ends::now : end_of_device_work(device);
}

executor::Node::Ends TaskNode::end_of_device_work(Device device) {
  Queue& queue = current_queue(device);
  extra_->work.emplace(queue.core().recorded());
  Event event = queue.record();
  if (extra_->counted->early.empty() && event.done()) {
    event.wait();  // throws what the work failed with
    if (const std::exception_ptr error = extra_->work->failure()) std::rethrow_exception(error);
    extra_->work.reset();
    return Ends::now;
  }
  if (seen_ != 0) [[unlikely]]
    seeing::goes_on(*this);
  if (data_ != nullptr) data_->left_to_device();
  const executor::Ref<TaskNode> held(*this);  // it may end now
  end_after(device, std::move(event), held);
  extra_->counted->on_device.store(true, std::memory_order_release);
  let_followers_go();
  return Ends::later;
}

void TaskNode::end_on_device(std::exception_ptr error) noexcept {
  // What it came after has ended: their events came before this one's.
  if (const TaskNode* const failed = failed_before()) return end_without(*failed);
  if (!error && extra_->work) error = extra_->work->failure();
  end(extra_->counted->error ? extra_->counted->error : std::move(error));
}

void TaskNode::done() noexcept {
  if (seen_ != 0) [[unlikely]]
    seeing::ends(*this);
  if (data_ != nullptr) data_->end(failure().get());  // what comes after it keeps the node longer
  outer_ = {};
  if (!extra_) return;
  extra_->work.reset();
  if (extra_->counted) {
    if (extra_->counted->begun != 0) extra_->counted->load->end(extra_->counted->begun);
    extra_->counted->load->leave();
    extra_->counted->early.clear();
    Ahead::give(*this);
  }
  if (extra_->stop) extra_->stop->outside.reset();
}

}  // namespace tessera::detail
