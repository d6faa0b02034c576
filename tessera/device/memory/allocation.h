// SPDX-License-Identifier: Apache-2.0
// Memory allocated by a driver. Internal.
#pragma once

#include <cstddef>

namespace tessera {

/// Memory returned by a driver. `handle` is the driver's handle, such as a cl_mem or a device address. `host` is set if
/// the host can access the bytes directly. Handles do not support pointer arithmetic: a buffer is always an allocation,
/// a byte offset and a length.
struct Allocation {
  void* handle = nullptr;
  std::byte* host = nullptr;
  std::size_t bytes = 0;
};

}  // namespace tessera
