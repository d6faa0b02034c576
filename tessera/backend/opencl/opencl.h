// SPDX-License-Identifier: Apache-2.0
// The `opencl` backend: every device of every platform that the system's loader lists, including CPUs. The library
// (libOpenCL.so.1, or the file in TESSERA_OPENCL_LIBRARY) is opened at run time and never closed.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. Opens nothing until devices are requested. Devices are numbered across all platforms in the
/// loader's order.
std::unique_ptr<Driver> make_opencl_driver();

}  // namespace tessera
