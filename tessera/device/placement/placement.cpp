// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "tessera/base/config.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {
namespace {

struct Counters {
  std::mutex lock;
  std::map<std::pair<Device, std::string>, std::unique_ptr<LaunchCounter>> launches;
};
constinit os::PerProcess<Counters> the_counters;
Counters& counters() { return the_counters.get(); }

}  // namespace

LaunchCounter& launch_counter(const std::string& name, Device device) {
  Counters& c = counters();
  std::lock_guard hold(c.lock);
  auto& counter = c.launches[{device, name}];
  if (!counter) {
    counter = std::make_unique<LaunchCounter>();
    counter->name = name;
    counter->device = device;
  }
  return *counter;
}

void sort_for_people(std::vector<PlacementLog::KernelCount>& kernels) {
  std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.device, b.launches, a.kernel) < std::tuple(b.device, a.launches, b.kernel);
  });
}

PlacementLog placement_log() {
  PlacementLog log;
  {
    Counters& c = counters();
    std::lock_guard hold(c.lock);
    for (const auto& [key, counter] : c.launches) {
      const std::uint64_t n = counter->launches.load(std::memory_order_relaxed);
      if (n != 0 && holds_data(counter->device)) log.kernels.push_back({counter->name, counter->device, n});
    }
  }
  sort_for_people(log.kernels);
  for (OpenDevice* open : open_devices()) {
    if (!open->holds_data) continue;
    const CopyCounters& c = open->copies;
    PlacementLog::Copies row{.device = open->device};
    row.to_device_bytes = c.to_device_bytes, row.to_device_count = c.to_device_count;
    row.to_host_bytes = c.to_host_bytes, row.to_host_count = c.to_host_count;
    row.within_bytes = c.within_bytes, row.within_count = c.within_count;
    row.from_peers_bytes = c.from_peers_bytes, row.from_peers_count = c.from_peers_count;
    if (row.to_device_count + row.to_host_count + row.within_count + row.from_peers_count != 0)
      log.copies.push_back(row);
    const KernelCounters& k = open->kernels;
    if (k.compiled + k.loaded + k.packed != 0)
      log.made.push_back({open->device, k.compiled, k.loaded, k.damaged, k.refused, k.kept, k.packed, k.unpacked});
  }
  std::ranges::sort(log.made, {}, &PlacementLog::Made::device);
  return log;
}

void reset_placement_log() {
  {
    Counters& c = counters();
    std::lock_guard hold(c.lock);
    for (auto& [key, counter] : c.launches) counter->launches = 0;
  }
  for (OpenDevice* open : open_devices()) {
    CopyCounters& c = open->copies;
    for (auto* counter : {&c.to_device_bytes, &c.to_host_bytes, &c.within_bytes, &c.from_peers_bytes,
                          &c.to_device_count, &c.to_host_count, &c.within_count, &c.from_peers_count})
      *counter = 0;
    KernelCounters& k = open->kernels;
    for (auto* counter : {&k.compiled, &k.loaded, &k.damaged, &k.refused, &k.packed, &k.unpacked}) *counter = 0;
  }
}

std::string to_string(const PlacementLog& log) {
  std::size_t width = 6;
  for (const auto& k : log.kernels) width = std::max(width, k.kernel.size());
  std::string text = fmt::format("{:<10}  {:<{}}  {:>10}\n", "device", "kernel", width, "launches");
  for (const auto& k : log.kernels)
    text += fmt::format("{:<10}  {:<{}}  {:>10}\n", to_string(k.device), k.kernel, width, k.launches);
  if (log.kernels.empty()) text += "(nothing was launched)\n";
  text +=
      fmt::format("\n{:<10}  {:>22}  {:>22}  {:>22}", "device", "copied to it", "copied to the host", "copied within");
  const bool peers = std::ranges::any_of(log.copies, [](const auto& c) { return c.from_peers_count != 0; });
  text += peers ? fmt::format("  {:>22}\n", "from other devices") : "\n";
  const auto cell = [](std::uint64_t bytes, std::uint64_t n) {
    return fmt::format("{} in {}", config::format_bytes(bytes), n);
  };
  for (const auto& c : log.copies) {
    text +=
        fmt::format("{:<10}  {:>22}  {:>22}  {:>22}", to_string(c.device), cell(c.to_device_bytes, c.to_device_count),
                    cell(c.to_host_bytes, c.to_host_count), cell(c.within_bytes, c.within_count));
    text += peers ? fmt::format("  {:>22}\n", cell(c.from_peers_bytes, c.from_peers_count)) : "\n";
  }
  if (log.copies.empty()) text += "(nothing was copied)\n";
  if (!log.made.empty()) text += "\n";
  for (const auto& m : log.made) {
    text += fmt::format("kernels of {}: {} compiled", to_string(m.device), m.compiled);
    if (m.damaged != 0) text += fmt::format(", {} of them because their cache files are damaged", m.damaged);
    if (m.refused != 0) text += fmt::format(", {} of them because their cache files could not be loaded", m.refused);
    if (m.packed + m.unpacked != 0)
      text += fmt::format(", {} loaded from the pack, {} not in it", m.packed, m.unpacked);
    if (m.kept)
      text += fmt::format(", {} loaded from disk\n", m.loaded);
    else
      text += m.packed != 0 ? "\n" : "; not cached by Tessera\n";
  }
  return text;
}

}  // namespace tessera
