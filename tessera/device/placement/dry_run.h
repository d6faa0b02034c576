// SPDX-License-Identifier: Apache-2.0
// A dry run: a program's own code runs on a device that stands for another, which answers what memory it would need
// there. Shapes, kernels' specifications and the pool are the real ones; memory is not taken, and nothing is computed.
#pragma once

#include "tessera/device/memory/storage.h"

namespace tessera {

/// While it lives, `device()` is a device with the facts and limits of `like`, without bounds of memory. Allocations on
/// it take none, launches and copies do nothing, what is read back is zeros; the placement log does not show it.
/// Threads may have dry runs of their own.
class DryRun {
 public:
  explicit DryRun(Device like);  ///< DeviceError if there is no such device. Opens nothing.
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// The device that stands for the real one.
  Device device() const { return device_; }
  /// The real device.
  Device like() const { return like_; }
  /// As `memory_stats` of the real device would be, in bytes since the dry run began.
  MemoryStats stats() const;

 private:
  Device like_, device_;
};

/// False on the device of a dry run: what is uploaded there is not looked at, so it need not be made.
inline bool holds_data(Device device) { return device.backend != Backend::dry_run; }

}  // namespace tessera
