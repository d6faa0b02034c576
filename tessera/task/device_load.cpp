// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/device_load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

#include "tessera/base/os/fork.h"
#include "tessera/task/task_node.h"

namespace tessera::detail {

namespace {

// Assumed latency in nanoseconds and bandwidth (20 GB/s) of copies between devices. PCIe 4 x16 has a peak of 32 GB/s,
// and links between GPUs are several times faster.
constexpr std::int64_t copy_latency = 20'000, bytes_per_microsecond = 20'000;

struct Loads {
  std::mutex lock;
  std::map<Device, DeviceLoad*> all;
};
constinit os::PerProcess<Loads> loads;

}  // namespace

DeviceLoad& DeviceLoad::of(Device device) {
  Loads& l = *loads;
  const std::lock_guard hold(l.lock);
  DeviceLoad*& there = l.all[device];
  if (there == nullptr) there = new DeviceLoad;
  return *there;
}

void DeviceLoad::end(std::int64_t begun) noexcept {
  const std::int64_t now = load_clock();
  const std::lock_guard hold(lock_);
  begun_.fetch_sub(1, std::memory_order_relaxed);
  // The device was busy with other tasks until the last one of them ended.
  last_[ended_++ % most_kept] = std::max<std::int64_t>(now - std::max(begun, last_end_), 1);
  last_end_ = now;
  std::array<std::int64_t, most_kept> sorted = last_;
  const std::size_t n = std::min(ended_, most_kept);
  std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
  median_.store(sorted[n / 2], std::memory_order_relaxed);
}

std::int64_t load_clock() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t estimated_finish(std::uint32_t before, std::int64_t median, const MissingData& missing) noexcept {
  return (std::int64_t{before} + 1) * median + static_cast<std::int64_t>(missing.copies) * copy_latency +
         static_cast<std::int64_t>(missing.bytes) * 1000 / bytes_per_microsecond;
}

Device least_loaded(const std::vector<Device>& devices) {
  if (devices.size() == 1) return devices.front();
  const bool known = std::ranges::all_of(devices, [](Device d) { return DeviceLoad::of(d).median() != 0; });
  return *std::ranges::min_element(devices, {}, [&](Device d) {
    const DeviceLoad& load = DeviceLoad::of(d);
    const std::uint32_t tasks = std::max(load.placed(), DeviceTasks::of(d).in_flight());
    return known ? (std::int64_t{tasks} + 1) * load.median() : std::int64_t{tasks};
  });
}

}  // namespace tessera::detail
