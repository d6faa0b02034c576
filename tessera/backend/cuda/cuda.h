// SPDX-License-Identifier: Apache-2.0
// The `cuda` backend: NVIDIA GPUs through the CUDA driver library. NVRTC compiles the kernels. If NVRTC is not
// installed, the code-generation module and the driver compile them. The libraries libcuda.so.1, libnvrtc.so and
// libtessera-codegen.so are opened at run time and never closed. TESSERA_CUDA_LIBRARY, TESSERA_NVRTC_LIBRARY and
// TESSERA_CODEGEN_LIBRARY select different files.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. It opens no library before devices are requested. Devices are numbered by PCI address, or in
/// the order of CUDA_VISIBLE_DEVICES if this variable is set.
std::unique_ptr<Driver> make_cuda_driver();

}  // namespace tessera
