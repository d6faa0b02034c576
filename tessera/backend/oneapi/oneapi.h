// SPDX-License-Identifier: Apache-2.0
// Intel GPUs through Level Zero; kernels are compiled by libocloc, or by Intel's OpenCL driver where that is missing.
// The loader (libze_loader) is opened at run time, or the file that TESSERA_ONEAPI_LIBRARY names; TESSERA_OCLOC_LIBRARY
// names the compiler.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// The backend. Does nothing before it is asked; devices are ordered by PCI address, and tiles of a card are listed
/// only if Level Zero is told to (ZE_FLAT_DEVICE_HIERARCHY).
std::unique_ptr<Driver> make_oneapi_driver();

}  // namespace tessera
