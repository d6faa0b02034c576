// SPDX-License-Identifier: Apache-2.0
// Memory allocated by a driver. Internal.
#pragma once

#include <cstddef>

namespace tessera {

/// Memory returned by a driver. `handle` is the driver's handle (a cl_mem, a device address); `host` is set if the host
/// may access the bytes directly. A handle is not an address: buffers are always {allocation, byte offset, length}.
struct Allocation {
  void* handle = nullptr;
  std::byte* host = nullptr;
  std::size_t bytes = 0;
};

}  // namespace tessera
