// SPDX-License-Identifier: Apache-2.0
// Dry runs: a program runs on a device that simulates another device, to find out how much memory it would need there.
// Shapes, kernel specifications and the pool are real, but no memory is allocated and nothing is computed.
#pragma once

#include "tessera/device/memory/storage.h"

namespace tessera {

/// While this object exists, `device()` is a device with the properties and limits of `like`, but with unlimited
/// memory. Allocations on it use no memory, launches and copies do nothing, and downloads return zeros. The placement
/// log does not contain this device. Each thread may have its own dry runs.
class DryRun {
 public:
  explicit DryRun(Device like);  ///< Throws DeviceError if the device does not exist. Does not open it.
  /// Simulates a device that does not have to exist.
  explicit DryRun(const DeviceInfo& like);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// The simulating device.
  Device device() const { return device_; }
  /// The simulated device.
  Device like() const { return like_; }
  /// Returns the memory statistics that the real device would have, since the start of the dry run.
  MemoryStats stats() const;

 private:
  Device like_, device_;
  bool reusable_ = true;
};

/// False on the device of a dry run. Data uploaded to it is ignored, so callers can skip computing it.
inline bool holds_data(Device device) { return device.backend != Backend::dry_run; }

}  // namespace tessera
