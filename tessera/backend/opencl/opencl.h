// SPDX-License-Identifier: Apache-2.0
// The `opencl` backend: all devices of all OpenCL platforms on the system, including CPUs. The loader (libOpenCL.so.1,
// or the file in TESSERA_OPENCL_LIBRARY) is opened at run time and never closed.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. It opens no library before devices are requested. Devices are numbered across all platforms, in
/// the order of the loader.
std::unique_ptr<Driver> make_opencl_driver();

}  // namespace tessera
