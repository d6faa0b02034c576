// SPDX-License-Identifier: Apache-2.0
// The counters behind the placement log. Internal to device/.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tessera/device/device.h"

namespace tessera {

/// Launches of the kernels of one name on one device. Never freed: `name` is also what faults name.
struct LaunchCounter {
  std::string name;
  Device device;
  std::atomic<std::uint64_t> launches = 0;
};
/// The counter of this name and device, made on first need.
LaunchCounter& launch_counter(const std::string& name, Device device);

}  // namespace tessera
