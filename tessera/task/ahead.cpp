// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/ahead.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/base/os/fork.h"
#include "tessera/task/node.h"

namespace tessera::detail {

namespace {

constexpr std::uint32_t most = 4, least = 2;
constexpr std::int64_t enough = 2'000'000;  // nanoseconds of work
constexpr std::size_t looked_at = 256;  // of those that are kept back: who stands behind them waits for the next time

using Options = std::vector<std::pair<Device, Missing>>;  // where it may go, and what it lacks there
struct Kept {
  executor::Ref<TaskNode> node;
  int priority;
  Options options;
};
struct Devices {
  std::mutex lock;
  std::map<Device, std::uint32_t> taken;
  std::map<Device, std::deque<Kept>> fixed;     // that run on this one only
  std::map<Backend, std::deque<Kept>> movable;  // that run on some of this kind
};
constinit os::PerProcess<Devices> process;

bool full(std::uint32_t taken, Device device) {
  return taken >= most || (taken >= least && taken * DeviceLoad::of(device).median() >= enough);
}

void keep(std::deque<Kept>& all, Kept&& one) {
  const auto at = std::ranges::upper_bound(all, one.priority, std::greater<>(), &Kept::priority);
  all.insert(at, std::move(one));
}

/// How many on each device have a place, or wait for one on this device alone; counted on as others are kept back for
/// it.
using Waiting = std::map<Device, std::uint32_t>;
Waiting waiting_on(const Devices& devices) {
  Waiting waiting = devices.taken;
  for (const auto& [device, kept] : devices.fixed) waiting[device] += static_cast<std::uint32_t>(kept.size());
  return waiting;
}

Device first_done(const TaskNode& node, const Options& options, Waiting& waiting) {
  std::vector<Device> devices;
  for (const auto& [d, missing] : options) devices.push_back(d);
  return earliest(
      node.device(), devices, [&](Device d) { return waiting[d]; },
      [&](Device d) { return std::ranges::find(options, d, &Options::value_type::first)->second; });
}

}  // namespace

bool Ahead::take(TaskNode& node) noexcept {
  TaskNode::Counted& counted = *node.counted();
  if (counted.place) return true;  // it was kept back, and asks again
  try {
    Options options;
    const bool movable = !counted.others.empty() && node.data_ != nullptr && node.data_->may_move();
    if (movable)
      for (const Device d : counted.others) options.emplace_back(d, node.data_->missing_on(d));
    Devices& devices = *process;
    const std::lock_guard hold(devices.lock);
    const Device placed = node.device();
    if (!movable) {
      std::uint32_t& taken = devices.taken[placed];
      if (!full(taken, placed)) return ++taken, counted.place = true;
      auto& kept = devices.fixed[placed];
      Kept one{executor::Ref<TaskNode>(node), node.priority(), {}};
      node.put_off();
      keep(kept, std::move(one));
      return false;
    }
    Waiting waiting = waiting_on(devices);
    auto& kept = devices.movable[placed.backend];
    std::size_t before = 0;
    for (const Kept& k : kept) {
      if (k.priority < node.priority() || ++before > looked_at) break;
      ++waiting[first_done(*k.node, k.options, waiting)];
    }
    const Device best = first_done(node, options, waiting);
    std::uint32_t& taken = devices.taken[best];
    if (waiting[best] == taken && !full(taken, best)) {
      node.go_to(best);
      return ++taken, counted.place = true;
    }
    Kept one{executor::Ref<TaskNode>(node), node.priority(), std::move(options)};
    node.put_off();
    keep(kept, std::move(one));
    return false;
  } catch (const std::exception&) {  // no memory to keep it back
    return true;
  }
}

void Ahead::give(TaskNode& node) noexcept {
  TaskNode::Counted& counted = *node.counted();
  Devices& devices = *process;
  executor::Ref<TaskNode> next[most + 1];
  std::size_t count = 0;
  {
    const std::lock_guard hold(devices.lock);
    if (!counted.place) return;
    counted.place = false;
    const Device device = node.device();
    --devices.taken[device];
    const auto let_go = [&](std::deque<Kept>& from, std::size_t at, Device to) {
      next[count] = from[at].node;
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
      ++devices.taken[to];
      next[count]->counted()->place = true;
      next[count++]->go_to(to);
    };
    try {
      const auto fixed = devices.fixed.find(device);
      while (count < most && fixed != devices.fixed.end() && !fixed->second.empty() &&
             !full(devices.taken[device], device))
        let_go(fixed->second, 0, device);
      const auto movable = devices.movable.find(device.backend);
      if (movable != devices.movable.end()) {
        Waiting waiting = waiting_on(devices);
        auto& kept = movable->second;
        for (std::size_t i = 0, seen = 0; i < kept.size() && seen < looked_at && count <= most; ++seen) {
          const Device best = first_done(*kept[i].node, kept[i].options, waiting);
          const std::uint32_t taken = devices.taken[best];
          const bool goes = waiting[best] == taken && !full(taken, best);
          ++waiting[best];
          if (goes)
            let_go(kept, i, best);
          else
            ++i;
        }
      }
    } catch (const std::exception&) {  // no memory: they go with the next that ends
    }
  }
  for (std::size_t i = 0; i < count; ++i) next[i]->ask_again();
}

}  // namespace tessera::detail
