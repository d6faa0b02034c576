// SPDX-License-Identifier: Apache-2.0
// Dry runs: a program runs on a device that simulates another, to find out how much memory it would need there. Shapes,
// kernel specifications and the pool are real; no memory is allocated and nothing is computed.
#pragma once

#include "tessera/device/memory/storage.h"

namespace tessera {

/// While it exists, `device()` is a device with the properties and limits of `like`, but unlimited memory. Allocations
/// on it use none, launches and copies do nothing, downloads return zeros, and the placement log omits it. Each thread
/// may have its own dry runs.
class DryRun {
 public:
  explicit DryRun(Device like);  ///< Throws DeviceError if the device does not exist. Opens nothing.
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// The simulating device.
  Device device() const { return device_; }
  /// The simulated device.
  Device like() const { return like_; }
  /// Memory statistics as of the real device, since the start of the dry run.
  MemoryStats stats() const;

 private:
  Device like_, device_;
};

/// False on the device of a dry run: uploaded data is ignored there, so it need not be computed.
inline bool holds_data(Device device) { return device.backend != Backend::dry_run; }

}  // namespace tessera
