// SPDX-License-Identifier: Apache-2.0
// The load of each device and the duration of its tasks. They are used to place tasks on the device that finishes them
// first. Internal.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tessera/device/device.h"

namespace tessera::detail {

/// The load of one device. Counts all tasks on GPUs. On built-in devices, counts only tasks that a policy placed or
/// that could run on several devices.
class DeviceLoad {
 public:
  /// Returns the object of a device. It is created on first use and never destroyed.
  static DeviceLoad& of(Device device);

  void place() noexcept { placed_.fetch_add(1, std::memory_order_relaxed); }
  void leave() noexcept { placed_.fetch_sub(1, std::memory_order_relaxed); }
  void begin() noexcept { begun_.fetch_add(1, std::memory_order_relaxed); }
  /// Records that a task that began at `begun` has finished its work.
  void end(std::int64_t begun) noexcept;

  /// Number of placed tasks that have not ended.
  std::uint32_t placed() const noexcept { return placed_.load(std::memory_order_relaxed); }
  std::uint32_t begun() const noexcept { return begun_.load(std::memory_order_relaxed); }  ///< number of running tasks
  /// Median time in nanoseconds for which recent tasks kept the device busy. 0 if no task has ended.
  std::int64_t median() const noexcept { return median_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t most_kept = 9;
  std::atomic<std::uint32_t> placed_ = 0, begun_ = 0;
  std::atomic<std::int64_t> median_ = 0;
  std::mutex lock_;  // guards the following members
  std::array<std::int64_t, most_kept> last_{};
  std::size_t ended_ = 0;
  std::int64_t last_end_ = 0;
};

/// Returns the current time in nanoseconds, for `DeviceLoad::end`.
std::int64_t load_clock() noexcept;

/// Chooses the device for a task without data. If the task durations of all devices are known, returns the device that
/// finishes the task first. Otherwise returns the device with the fewest tasks.
Device least_loaded(const std::vector<Device>& devices);

/// The copies that are necessary before a task can begin on a device.
struct MissingData {
  std::uint64_t copies = 0, bytes = 0;
};
/// Returns the estimated number of nanoseconds until a task finishes. It runs after `before` other tasks and after its
/// copies, for which a nominal bandwidth is assumed.
std::int64_t estimated_finish(std::uint32_t before, std::int64_t median, const MissingData& missing) noexcept;

/// Called when a task is about to begin on `chosen`. Returns the device that finishes the task first, or `chosen`
/// unless another device is clearly faster. `before(device)` returns how many tasks run before it, and
/// `missing(device)` returns the copies that it needs.
template <class B, class F>
Device earliest(Device chosen, const std::vector<Device>& devices, B&& before, F&& missing) {
  std::int64_t shortest = 0;  // shortest known duration of all devices
  for (const Device d : devices)
    if (const std::int64_t m = DeviceLoad::of(d).median(); m != 0 && (shortest == 0 || m < shortest)) shortest = m;
  if (shortest == 0) return chosen;
  const auto until = [&](Device d) {
    const DeviceLoad& load = DeviceLoad::of(d);
    return estimated_finish(before(d), load.median() != 0 ? load.median() : shortest, missing(d));
  };
  const std::int64_t stays = until(chosen);
  Device best = chosen;
  std::int64_t least = stays - stays / 8;
  for (const Device d : devices)
    if (const std::int64_t t = d == chosen ? stays : until(d); t < least) best = d, least = t;
  return best;
}

}  // namespace tessera::detail
