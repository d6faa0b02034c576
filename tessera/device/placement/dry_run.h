// SPDX-License-Identifier: Apache-2.0
// Dry runs: a program runs on a device that simulates another device, to find out how much memory it would need there.
// Shapes, kernel specifications and the pool are real, but no memory is allocated and nothing is computed.
#pragma once

#include <memory>
#include <vector>

#include "tessera/device/launch/variant.h"
#include "tessera/device/memory/storage.h"
#include "tessera/ir/fwd.h"

namespace tessera {

/// A kernel launch in a dry run.
struct DryLaunch {
  std::shared_ptr<const ir::Function> function;
  Variant variant;
  std::array<std::uint64_t, 3> shape{};  ///< threads of a map kernel, blocks of a block kernel
  std::vector<std::uint64_t> values;     ///< per parameter: the number of elements of a buffer, or the bits of a scalar
};

/// While this object exists, `device()` is a device with the properties and limits of `like`, but with unlimited
/// memory. Allocations on it use no memory, launches and copies do nothing, and downloads return zeros. The placement
/// log does not contain this device. Each thread may have its own dry runs.
class DryRun {
 public:
  explicit DryRun(Device like);  ///< Throws DeviceError if the device does not exist. Does not open it.
  /// Simulates a device that does not have to exist. Records the launches.
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
  /// Returns the launches since the start of the dry run, if it was constructed with a DeviceInfo.
  const std::vector<DryLaunch>& launches() const;

 private:
  Device like_, device_;
  bool reusable_ = true;
};

/// False on the device of a dry run. Data uploaded to it is ignored, so callers can skip computing it.
inline bool holds_data(Device device) { return device.backend != Backend::dry_run; }

}  // namespace tessera
