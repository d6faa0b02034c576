// SPDX-License-Identifier: Apache-2.0
// The `rocm` backend: AMD GPUs through the HIP runtime of ROCm 5, 6 and 7, with kernels compiled by hiprtc. The
// libraries (libamdhip64.so and libhiprtc.so, or the files in TESSERA_ROCM_LIBRARY and TESSERA_HIPRTC_LIBRARY) are
// opened at run time and never closed.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. Opens nothing until devices are requested. Devices are numbered by PCI address, or in the order
/// of HIP_VISIBLE_DEVICES or one of its equivalents if one is set.
std::unique_ptr<Driver> make_rocm_driver();

}  // namespace tessera
