// SPDX-License-Identifier: Apache-2.0
// How much each device has to do, and how long a task takes there: so that tasks that may run on several go where they
// are done first. Internal.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tessera/device/device.h"

namespace tessera::detail {

/// Of one device. Counted are tasks that a GPU runs, and those whose scope has several devices.
class DeviceLoad {
 public:
  /// Made when it is first asked for; never destroyed.
  static DeviceLoad& of(Device device);

  void place() noexcept { placed_.fetch_add(1, std::memory_order_relaxed); }
  void leave() noexcept { placed_.fetch_sub(1, std::memory_order_relaxed); }
  void begin() noexcept { begun_.fetch_add(1, std::memory_order_relaxed); }
  /// One that began its work then has done it.
  void end(std::int64_t begun) noexcept;

  std::uint32_t placed() const noexcept { return placed_.load(std::memory_order_relaxed); }  ///< and not ended
  std::uint32_t begun() const noexcept { return begun_.load(std::memory_order_relaxed); }    ///< and not ended
  /// Nanoseconds that a task keeps the device busy: the median of the last ones. 0: none has ended.
  std::int64_t median() const noexcept { return median_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t most_kept = 9;
  std::atomic<std::uint32_t> placed_ = 0, begun_ = 0;
  std::atomic<std::int64_t> median_ = 0;
  std::mutex lock_;  // of what follows
  std::array<std::int64_t, most_kept> last_{};
  std::size_t ended_ = 0;
  std::int64_t last_end_ = 0;
};

/// Nanoseconds now, for `DeviceLoad::end`.
std::int64_t load_clock() noexcept;

/// For a task without data: the device that is done with it first if all have shown how long tasks take there, else the
/// one with the fewest.
Device least_loaded(const std::vector<Device>& devices);

/// What a task has to have copied to a device before it begins there.
struct MissingData {
  std::uint64_t copies = 0, bytes = 0;
};
/// Nanoseconds until a task is done: after `before` others, and its copies at a nominal rate.
std::int64_t estimated_finish(std::uint32_t before, std::int64_t median, const MissingData& missing) noexcept;

/// For a task that is about to begin on `chosen`: of these devices the one that is done with it first, or `chosen`,
/// unless another is clearly earlier. `before(device)` tells how many others are done there before it,
/// `missing(device)` what it lacks there.
template <class B, class F>
Device earliest(Device chosen, const std::vector<Device>& devices, B&& before, F&& missing) {
  std::int64_t shortest = 0;  // of those that are known
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
