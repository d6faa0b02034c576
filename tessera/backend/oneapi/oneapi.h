// SPDX-License-Identifier: Apache-2.0
// The `oneapi` backend: Intel GPUs through Level Zero. Kernels are compiled by libocloc, or by Intel's OpenCL driver if
// libocloc is missing. The Level Zero loader is opened at run time. TESSERA_ONEAPI_LIBRARY and TESSERA_OCLOC_LIBRARY
// select other files for the loader and for libocloc.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. It opens no library before devices are requested. Devices are numbered by PCI address. The
/// tiles of a card are listed as separate devices only if ZE_FLAT_DEVICE_HIERARCHY requests it.
std::unique_ptr<Driver> make_oneapi_driver();

}  // namespace tessera
