// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/dispatch_limit.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/base/os/fork.h"
#include "tessera/task/device_load.h"
#include "tessera/task/load_entry.h"
#include "tessera/task/task_node.h"

namespace tessera::detail {

namespace {

constexpr std::uint32_t max_in_flight = 4, min_in_flight = 2;
constexpr std::int64_t min_queued_ns = 2'000'000;  // nanoseconds of work
constexpr std::size_t max_scanned = 256;           // maximum number of deferred tasks that are checked at a time

using Options = std::vector<std::pair<Device, MissingData>>;  // possible devices, with the copies that are needed there
struct DeferredTask {
  executor::Ref<TaskNode> node;
  int priority;
  Options options;
};
struct Devices {
  std::mutex lock;
  std::map<Device, std::uint32_t> taken;
  std::map<Device, std::deque<DeferredTask>> fixed;     // tasks with only one possible device
  std::map<Backend, std::deque<DeferredTask>> movable;  // tasks that may run on several devices of the backend
};
constinit os::PerProcess<Devices> process_devices;

bool full(std::uint32_t taken, Device device) {
  return taken >= max_in_flight || (taken >= min_in_flight && taken * DeviceLoad::of(device).median() >= min_queued_ns);
}

void insert_by_priority(std::deque<DeferredTask>& all, DeferredTask&& one) {
  const auto at = std::ranges::upper_bound(all, one.priority, std::greater<>(), &DeferredTask::priority);
  all.insert(at, std::move(one));
}

/// Returns the number of tasks for each device that have a slot, or that are deferred and can only run on this device.
/// The caller adds movable tasks that are ahead in the queue.
using Waiting = std::map<Device, std::uint32_t>;
Waiting waiting_on(const Devices& devices) {
  Waiting waiting = devices.taken;
  for (const auto& [device, deferred] : devices.fixed) waiting[device] += static_cast<std::uint32_t>(deferred.size());
  return waiting;
}

Device earliest_device(const TaskNode& node, const Options& options, Waiting& waiting) {
  std::vector<Device> devices;
  for (const auto& [d, missing] : options) devices.push_back(d);
  return earliest(
      node.device(), devices, [&](Device d) { return waiting[d]; },
      [&](Device d) { return std::ranges::find(options, d, &Options::value_type::first)->second; });
}

}  // namespace

bool DispatchLimit::try_acquire(TaskNode& node) noexcept {
  TaskNode::LoadEntry& load_entry = *node.load_entry();
  if (load_entry.place) return true;  // was deferred and has a slot now
  try {
    Options options;
    const bool movable = !load_entry.others.empty() && node.data_ != nullptr && node.data_->can_migrate();
    if (movable)
      for (const Device d : load_entry.others) options.emplace_back(d, node.data_->missing_on(d));
    Devices& devices = *process_devices;
    const std::lock_guard hold(devices.lock);
    const Device placed = node.device();
    if (!movable) {
      std::uint32_t& taken = devices.taken[placed];
      if (!full(taken, placed)) return ++taken, load_entry.place = true;
      auto& deferred = devices.fixed[placed];
      DeferredTask one{executor::Ref<TaskNode>(node), node.priority(), {}};
      node.defer();
      insert_by_priority(deferred, std::move(one));
      return false;
    }
    Waiting waiting = waiting_on(devices);
    auto& deferred = devices.movable[placed.backend];
    std::size_t before = 0;
    for (const DeferredTask& k : deferred) {
      if (k.priority < node.priority() || ++before > max_scanned) break;
      ++waiting[earliest_device(*k.node, k.options, waiting)];
    }
    const Device best = earliest_device(node, options, waiting);
    std::uint32_t& taken = devices.taken[best];
    if (waiting[best] == taken && !full(taken, best)) {
      node.migrate_to(best);
      return ++taken, load_entry.place = true;
    }
    DeferredTask one{executor::Ref<TaskNode>(node), node.priority(), std::move(options)};
    node.defer();
    insert_by_priority(deferred, std::move(one));
    return false;
  } catch (const std::exception&) {  // out of memory: run the task without a slot
    return true;
  }
}

void DispatchLimit::release(TaskNode& node) noexcept {
  TaskNode::LoadEntry& load_entry = *node.load_entry();
  Devices& devices = *process_devices;
  executor::Ref<TaskNode> next[max_in_flight + 1];
  std::size_t count = 0;
  {
    const std::lock_guard hold(devices.lock);
    if (!load_entry.place) return;
    load_entry.place = false;
    const Device device = node.device();
    --devices.taken[device];
    const auto let_go = [&](std::deque<DeferredTask>& from, std::size_t at, Device to) {
      next[count] = from[at].node;
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
      ++devices.taken[to];
      next[count]->load_entry()->place = true;
      next[count++]->migrate_to(to);
    };
    try {
      const auto fixed = devices.fixed.find(device);
      while (count < max_in_flight && fixed != devices.fixed.end() && !fixed->second.empty() &&
             !full(devices.taken[device], device))
        let_go(fixed->second, 0, device);
      const auto movable = devices.movable.find(device.backend);
      if (movable != devices.movable.end()) {
        Waiting waiting = waiting_on(devices);
        auto& deferred = movable->second;
        for (std::size_t i = 0, seen = 0; i < deferred.size() && seen < max_scanned && count <= max_in_flight; ++seen) {
          const Device best = earliest_device(*deferred[i].node, deferred[i].options, waiting);
          const std::uint32_t taken = devices.taken[best];
          const bool goes = waiting[best] == taken && !full(taken, best);
          ++waiting[best];
          if (goes)
            let_go(deferred, i, best);
          else
            ++i;
        }
      }
    } catch (const std::exception&) {  // out of memory: retried when the next task ends
    }
  }
  for (std::size_t i = 0; i < count; ++i) next[i]->retry();
}

}  // namespace tessera::detail
