// SPDX-License-Identifier: Apache-2.0
// The `rocm` backend: AMD GPUs through the HIP runtime of ROCm 5, 6 and 7. Kernels are compiled by hiprtc. The
// libraries libamdhip64.so and libhiprtc.so are opened at run time and never closed. TESSERA_ROCM_LIBRARY and
// TESSERA_HIPRTC_LIBRARY select different files.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. It opens no library before devices are requested. Devices are numbered by PCI address. If
/// HIP_VISIBLE_DEVICES or an equivalent variable is set, they are numbered in the order of this variable.
std::unique_ptr<Driver> make_rocm_driver();

}  // namespace tessera
