// SPDX-License-Identifier: Apache-2.0
// Memory of the host that a device copies to and from without the driver's own memory between: buffers that the driver
// allocates on the host's side, mapped for as long as they live. Used within this folder only.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

struct DeviceFacts;

/// A device's pinned memory, by address. Any thread may call it.
class Pinned {
 public:
  /// Null if the driver has none of this size.
  std::byte* allocate(Context context, const DeviceFacts& facts, std::size_t bytes);
  void release(std::byte* host) noexcept;

 private:
  std::mutex lock_;
  Queue queue_ = nullptr;  ///< on which is mapped and unmapped; made on first need, lives as long as the process
  std::map<std::byte*, Memory> live_;
};

}  // namespace tessera::cl
