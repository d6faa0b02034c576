// SPDX-License-Identifier: Apache-2.0
// Counters of the placement log. Internal to device/.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/os/fork.h"
#include "tessera/device/context.h"
#include "tessera/device/placement/placement_scope.h"

namespace tessera {

/// Counts the launches of all kernels with one name on one device. Never freed, because error messages refer to `name`.
struct LaunchCounter {
  std::string name;
  Device device;
  std::atomic<std::uint64_t> launches = 0;
};
/// Returns the counter for this name and device. Creates it on first use.
LaunchCounter& launch_counter(const std::string& name, Device device);

/// State of a Placement. Threads that inherited it may use it after the scope has ended.
struct PlacementState : std::enable_shared_from_this<PlacementState> {
  std::shared_ptr<PlacementState> outer;
  std::optional<std::vector<Device>> allowed;
  struct Counted {
    std::mutex lock;
    std::map<const LaunchCounter*, std::uint64_t> launches;
    std::map<Device, PlacementLog::Copies> copies;
  };
  os::PerProcess<Counted> counted;
  ~PlacementState() { counted.drop(); }
};

/// Reports launches and copies to the Placement scopes of the current thread.
struct PlacementAccess {
  enum class Direction : std::uint8_t { to_device, to_host, within, from_peers };

  /// Throws if a strict scope does not allow the device. `asked` is the operation ("launch"), `name` is the kernel.
  static void check(const char* asked, const std::string& name, Device device) {
    if (thread_context.placement != nullptr) [[unlikely]]
      refuse_unless_allowed(asked, name, device);
  }
  static void count(const LaunchCounter& counter) {
    if (thread_context.placement != nullptr) [[unlikely]]
      add(counter);
  }
  static void count(Device device, Direction direction, std::uint64_t bytes) {
    if (thread_context.placement != nullptr) [[unlikely]]
      add(device, direction, bytes);
  }

 private:
  static void refuse_unless_allowed(const char* asked, const std::string& name, Device device);
  static void add(const LaunchCounter& counter);
  static void add(Device device, Direction direction, std::uint64_t bytes);
};

/// Sorts by device, then by number of launches in descending order.
void sort_for_people(std::vector<PlacementLog::KernelCount>& kernels);

}  // namespace tessera
