// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, which a device accesses without an intermediate copy. It consists of buffers that the driver
// allocates in host memory and that are always mapped. Used only in this folder.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

struct DeviceFacts;

/// The pinned allocations of a device. Thread-safe.
class Pinned {
 public:
  /// Returns null if the driver cannot allocate this size.
  std::byte* allocate(Context context, const DeviceFacts& facts, std::size_t bytes);
  void release(std::byte* host) noexcept;

 private:
  std::mutex lock_;
  Queue queue_ = nullptr;  ///< for map and unmap commands; created on first use and never released
  std::map<std::byte*, Memory> live_;
};

}  // namespace tessera::cl
