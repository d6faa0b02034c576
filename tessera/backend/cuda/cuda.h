// SPDX-License-Identifier: Apache-2.0
// The `cuda` backend: NVIDIA GPUs through the CUDA driver library. Kernels are compiled by NVRTC or, where that is not
// installed, by the code-generation module and the driver. The libraries are opened at run time (libcuda.so.1,
// libnvrtc.so and libtessera-codegen.so, or the files in TESSERA_CUDA_LIBRARY, TESSERA_NVRTC_LIBRARY and
// TESSERA_CODEGEN_LIBRARY) and never closed.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. Opens nothing until devices are requested. Devices are numbered by PCI address, or in the order
/// of CUDA_VISIBLE_DEVICES if it is set.
std::unique_ptr<Driver> make_cuda_driver();

}  // namespace tessera
