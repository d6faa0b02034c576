// SPDX-License-Identifier: Apache-2.0
// AMD's GPUs through the HIP runtime of ROCm 5, 6 and 7, with kernels compiled by hiprtc. Both are opened at run time
// (libamdhip64.so and libhiprtc.so, or the files that TESSERA_ROCM_LIBRARY and TESSERA_HIPRTC_LIBRARY name), never
// closed.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// The backend. Does nothing before it is asked. Devices are numbered by PCI address, or as HIP_VISIBLE_DEVICES and its
/// like have them if one is set.
std::unique_ptr<Driver> make_rocm_driver();

}  // namespace tessera
