// SPDX-License-Identifier: Apache-2.0
// Process-wide state: the tasks of each device that belong to no region, unobserved errors, threads that wait for
// device work, and shutdown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/main_thread_exit.h"
#include "tessera/base/printable.h"
#include "tessera/device/memory/storage.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"
#include "tessera/executor/executor.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/task_node.h"
#include "tessera/task/trace_hooks.h"

namespace tessera::detail {

namespace {

// Maximum number of unobserved errors that are kept; further ones are only counted.
constexpr std::size_t most_kept = 64;
constexpr std::size_t most_named = 3;  // maximum number of cancelled tasks that the message at exit names

struct Failed {
  executor::FailureRef failure;
  Device device;
};

// Each asynchronous device has a thread that waits for its events. It sleeps unless tasks have work in the device's
// queue.
struct Lane {
  std::mutex lock;
  std::condition_variable changed;
  std::deque<std::pair<Event, executor::Ref<TaskNode>>> waiting;
  void serve() {
    for (;;) {
      std::unique_lock hold(lock);
      changed.wait(hold, [&] { return !waiting.empty(); });
      const auto [event, node] = std::move(waiting.front());
      waiting.pop_front();
      hold.unlock();
      std::exception_ptr error;
      try {
        event.wait();
      } catch (...) {
        error = std::current_exception();
      }
      node->end_on_device(error);
    }
  }
};

struct System {
  std::mutex lock;
  std::map<Device, DeviceTasks*> tasks;  // never destroyed
  std::map<Device, Lane*> lanes;         // never destroyed
  std::vector<Failed> failed;
  std::size_t failed_more = 0;
  bool ending = false;  // the program is ending; the following members are used from then on
  std::vector<std::string> never_began;
  std::size_t never_began_more = 0;
};
constinit os::PerProcess<System> process;

void drop_reported(System& system) {
  std::erase_if(system.failed,
                [](const Failed& f) { return f.failure->origin->observed.load(std::memory_order_relaxed); });
}

// Cancels tasks of these groups that have not begun, and waits for running ones. The time limit is the same as for
// probing drivers.
void end_tasks_of(const std::vector<DeviceTasks*>& groups) {
  const auto count = [&] {
    std::uint32_t left = 0;
    for (const DeviceTasks* g : groups) left += g->in_flight();
    return left;
  };
  std::uint32_t left = 0;
  if (executor::Executor::current() != nullptr || count() == 0) return;
  {
    System& system = *process;
    const std::scoped_lock hold(system.lock);
    system.ending = true;
  }
  for (DeviceTasks* g : groups) g->cancel();
  const int seconds = settings().probe_timeout;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while ((left = count()) != 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (left == 0) return;
  logging::warn(
      fmt::format("{} did not end within {} s after the end of the program, which exits without {} "
                  "(TESSERA_PROBE_TIMEOUT sets the limit)",
                  count_noun(left, "task"), seconds, left == 1 ? "it" : "them"));
}

// Runs before static objects of the drivers' libraries are destroyed, because tasks may still compile kernels.
void end_tasks_of_drivers() {
  try {
    std::vector<DeviceTasks*> groups = DeviceTasks::all();
    std::erase_if(groups, [](const DeviceTasks* g) { return is_built_in(g->device.backend); });
    end_tasks_of(groups);
  } catch (const std::exception&) {  // out of memory for a message, or an invalid setting
  }
}

// Runs before static objects that were created before the first task are destroyed.
void end_tasks() {
  try {
    System& system = *process;
    end_tasks_of(DeviceTasks::all());
    const std::scoped_lock hold(system.lock);
    if (const auto& named = system.never_began; !named.empty())
      logging::warn(fmt::format(
          "{} did not run because the program ended: {}{}. Wait for them or call synchronize() "
          "before main returns",
          count_noun(named.size() + system.never_began_more, "task"), fmt::join(named, ", "),
          system.never_began_more == 0 ? "" : fmt::format(" and {}", count_noun(system.never_began_more, "other"))));
    drop_reported(system);
    for (const Failed& f : system.failed) {
      logging::warn(fmt::format("task {} failed, and its error was never observed: {}", f.failure->origin->name,
                                text_of(f.failure->origin->error)));
      f.failure->origin->observed = true;
    }
    if (system.failed_more != 0) logging::warn(fmt::format("{} further tasks failed", system.failed_more));
    system.failed.clear();
  } catch (const std::exception&) {  // out of memory for a message, or an invalid setting
  }
  tracing::end_traces();
}

}  // namespace

DeviceTasks::DeviceTasks(executor::Executor& executor, Device d)
    : Group(executor, nullptr, std::max(4096u, 64 * executor.threads())), device(d) {}

DeviceTasks& DeviceTasks::of(Device device) {
  // The group of the CPU is requested most often, so it is cached.
  struct Known {
    std::uint32_t generation;
    DeviceTasks* tasks;
  };
  static constinit thread_local Known known{0, nullptr};
  if (device == Device{} && known.tasks != nullptr && known.generation == os::fork_generation()) return *known.tasks;
  System& system = *process;
  const std::scoped_lock hold(system.lock);
  tracing::at_exit();
  DeviceTasks*& there = system.tasks[device];
  if (there == nullptr) there = new DeviceTasks(executor::Executor::instance(), device);
  if (device == Device{}) known = {os::fork_generation(), there};
  return *there;
}

std::vector<DeviceTasks*> DeviceTasks::all() {
  System& system = *process;
  const std::scoped_lock hold(system.lock);
  std::vector<DeviceTasks*> groups;
  for (const auto& [device, tasks] : system.tasks) groups.push_back(tasks);
  return groups;
}

void tracing::at_exit() {
  {
    const os::ForkGuard guard;
    static const int registered = std::atexit(end_tasks);
    static_cast<void>(registered);
  }
  os::at_main_thread_exit(end_tasks_of_drivers);
}

void DeviceTasks::failed(const executor::Node& node) noexcept { remember_failure(node, device); }

void remember_failure(const executor::Node& node, Device device) noexcept {
  const executor::FailureRef& failure = node.failure();
  if (!failure->cancelled && !failure->through.empty()) return;  // count only the task that failed first
  try {
    System& system = *process;
    const std::scoped_lock hold(system.lock);
    if (failure->cancelled) {
      if (system.ending && system.never_began.size() < most_named)
        system.never_began.push_back(node.name());
      else if (system.ending)
        ++system.never_began_more;
      return;
    }
    if (system.failed.size() >= most_kept) drop_reported(system);
    if (system.failed.size() < most_kept)
      system.failed.push_back({failure, device});
    else
      ++system.failed_more;
  } catch (const std::exception&) {  // out of memory; waiting for the task still throws the error
  }
}

std::vector<executor::FailureRef> unreported_failures(std::span<const Device> devices) {
  System& system = *process;
  const std::scoped_lock hold(system.lock);
  drop_reported(system);
  std::vector<executor::FailureRef> all;
  for (const Failed& f : system.failed)
    if (std::ranges::find(devices, f.device) != devices.end()) all.push_back(f.failure);
  return all;
}

void end_after(Device device, Event event, executor::Ref<TaskNode> node) {
  Lane* lane = nullptr;
  {
    System& system = *process;
    const std::scoped_lock hold(system.lock);
    Lane*& there = system.lanes[device];
    if (there == nullptr) {
      auto fresh = std::make_unique<Lane>();
      std::thread([serving = fresh.get()] { serving->serve(); }).detach();
      there = fresh.release();
    }
    lane = there;
  }
  {
    const std::scoped_lock hold(lane->lock);
    lane->waiting.emplace_back(std::move(event), std::move(node));
  }
  lane->changed.notify_one();
}

}  // namespace tessera::detail

namespace tessera {

namespace {
bool is_open(Device device) {
  return std::ranges::any_of(open_devices(), [&](const OpenDevice* d) { return d->device == device && !d->gone(); });
}
}  // namespace

void synchronize(const Scope& scope) {
  for (detail::DeviceTasks* tasks : detail::DeviceTasks::all())
    if (scope.contains(tasks->device)) tasks->wait();
  for (const Device d : scope.devices())
    if (!is_built_in(d.backend) && is_open(d)) Queue::of(d).finish();
  if (const auto failures = detail::unreported_failures(scope.devices()); !failures.empty())
    detail::throw_failures(failures);
}

void synchronize(Backend backend) {
  std::vector<Device> devices;
  for (const DeviceInfo& info : discover(backend).devices) devices.push_back(info.device);
  if (!devices.empty()) synchronize(Scope(std::move(devices)));
}

void synchronize() {
  std::vector<Device> devices{Device{}};
  for (const detail::DeviceTasks* tasks : detail::DeviceTasks::all()) devices.push_back(tasks->device);
  for (const OpenDevice* d : open_devices())
    if (!d->gone()) devices.push_back(d->device);
  synchronize(Scope(std::move(devices)));
}

}  // namespace tessera
