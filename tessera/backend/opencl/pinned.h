// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, which a device accesses without an intermediate copy: buffers that the driver allocates in host
// memory, mapped for their whole lifetime. Used within this folder only.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

struct DeviceFacts;

/// A device's pinned memory, by address. Thread-safe.
class Pinned {
 public:
  /// Null if the driver cannot allocate this size.
  std::byte* allocate(Context context, const DeviceFacts& facts, std::size_t bytes);
  void release(std::byte* host) noexcept;

 private:
  std::mutex lock_;
  Queue queue_ = nullptr;  ///< for map and unmap commands; created on first use, lives until the process exits
  std::map<std::byte*, Memory> live_;
};

}  // namespace tessera::cl
