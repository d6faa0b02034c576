// SPDX-License-Identifier: Apache-2.0
// Drivers that can end the process of a test.
#pragma once

#include "tessera/device/device.h"

namespace tessera::test {

/// True for PoCL 5 and 6. With LLVM 18, they end the process for some kernels, even without optimisation
/// (pocl/pocl#1608), so that tests run the same random programs on them each time, and not all cells of a table.
inline bool ends_process_for_some_kernels(Device device) {
  const std::string version = device.backend == Backend::opencl ? device_info(device).driver_version : "";
  return version.starts_with("Portable Computing Language 5") || version.starts_with("Portable Computing Language 6");
}

}  // namespace tessera::test
