// SPDX-License-Identifier: Apache-2.0
// Devices reached through OpenCL: every device of every platform that the system's loader knows, CPUs included.
// The library is opened at run time (libOpenCL.so.1, or the file that TESSERA_OPENCL_LIBRARY names) and never closed.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// The backend. Does nothing before it is asked; devices are numbered over all platforms in the loader's order.
std::unique_ptr<Driver> make_opencl_driver();

}  // namespace tessera
