// SPDX-License-Identifier: Apache-2.0
// NVIDIA's GPUs through the CUDA driver library, with kernels compiled by NVRTC, or where that is not installed by the
// code-generation module and the driver. All are opened at run time (libcuda.so.1, libnvrtc.so and
// libtessera-codegen.so, or the files that TESSERA_CUDA_LIBRARY and its like name), never closed.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// The backend. Does nothing before it is asked. Devices are numbered by PCI address, or as CUDA_VISIBLE_DEVICES has
/// them if it is set.
std::unique_ptr<Driver> make_cuda_driver();

}  // namespace tessera
