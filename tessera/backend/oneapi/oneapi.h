// SPDX-License-Identifier: Apache-2.0
// Intel GPUs through Level Zero. Kernels are compiled by libocloc, or by Intel's OpenCL driver if libocloc is missing.
// The loader (libze_loader, or the file in TESSERA_ONEAPI_LIBRARY) is opened at run time; TESSERA_OCLOC_LIBRARY names
// the compiler.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. Opens nothing until devices are requested. Devices are ordered by PCI address; the tiles of a
/// card are listed only if ZE_FLAT_DEVICE_HIERARCHY requests it.
std::unique_ptr<Driver> make_oneapi_driver();

}  // namespace tessera
