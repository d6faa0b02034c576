// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/config.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/memory/storage.h"

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

Device Placing::choose_of_several() const {
  const auto& devices = scope().devices();
  if (data_.size() == 1 && devices.front() == data_[0].device) return data_[0].device;
  const auto most = std::ranges::max_element(data_, {}, &Held::bytes);
  if (most != data_.end() && (scope().contains(most->device) || (with_data_ && unsaid_))) return most->device;
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

struct TaskNode::Extra {
  std::optional<const InheritedContext> context;
  std::optional<Counted> counted;
  std::string name;  // empty: by the place
  std::unique_ptr<Stop> stop;

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

void TaskNode::count_load() {
  extra().counted.emplace(Counted{&DeviceLoad::of(device())});
  extra_->counted->load->place();
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
  if (!setting->serial) return submit_given();
  const auto given = executor::Ref<TaskNode>::adopt(this);
  submit_here();
}

TaskNode* TaskNode::current() noexcept { return const_cast<TaskNode*>(from(executor::Executor::current())); }

executor::Group& plain_tasks(Device device) {
  if (const TaskNode* const maker = TaskNode::current()) {
    TaskData* const data = maker->data() != nullptr ? maker->data() : maker->outer_data();
    if (executor::Group* const tasks = data != nullptr ? data->tasks() : nullptr) return *tasks;
  }
  return DeviceTasks::of(device);
}

/// Where it is done first, now that it can begin.
Device TaskNode::settle() {
  const Device placed = device();
  if (!extra_ || !extra_->counted || extra_->counted->others.empty() || data_ == nullptr || !data_->may_move())
    return placed;
  const Device best = earliest(placed, extra_->counted->others, [&](Device d) { return data_->missing_on(d); });
  if (best == placed) return placed;
  device_.store(best, std::memory_order_relaxed);
  extra_->counted->load->leave();
  count_load();
  return best;
}

executor::Node::Ends TaskNode::run() {
  const Device device = settle();
  Counted* const counted = extra_ && extra_->counted ? &*extra_->counted : nullptr;
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
  return is_built_in(device.backend) ? Ends::now : end_of_device_work(device);
}

executor::Node::Ends TaskNode::end_of_device_work(Device device) {
  Event event = current_queue(device).record();
  if (event.done()) {
    event.wait();  // throws what the work failed with
    return Ends::now;
  }
  if (seen_ != 0) [[unlikely]]
    seeing::goes_on(*this);
  end_after(device, std::move(event), executor::NodeRef(*this));
  return Ends::later;
}

void TaskNode::done() noexcept {
  if (seen_ != 0) [[unlikely]]
    seeing::ends(*this);
  if (data_ != nullptr) data_->end(failure().get());  // what comes after it keeps the node longer
  outer_ = {};
  if (!extra_) return;
  if (extra_->counted) {
    if (extra_->counted->begun != 0) extra_->counted->load->end(extra_->counted->begun);
    extra_->counted->load->leave();
  }
  if (extra_->stop) extra_->stop->outside.reset();
}

}  // namespace tessera::detail
