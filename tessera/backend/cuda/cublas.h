// SPDX-License-Identifier: Apache-2.0
// Finds a version of cuBLASLt, NVIDIA's matrix product library, that matches the driver. Used only in this folder and
// its tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/device/blas.h"
#include "tessera/device/driver.h"

namespace tessera::cuda {

/// Returns the files to try. If TESSERA_CUBLAS_LIBRARY is set, returns only this file ("none": no file). Otherwise
/// returns the usual names, and the files in the toolkit's folders and in Python packages.
std::vector<std::string> cublas_candidates();

/// Opens the first library that loads and is not from a later CUDA major version than the driver, and initialises it
/// for the device of the current context. `driver_version` is the value of cuDriverGetVersion, such as 12040 for CUDA
/// 12.4. The library is opened once per process. Returns null and sets `why` if there is no such library. Throws
/// KernelError if the library cannot be initialised.
std::unique_ptr<DriverBlas> open_cublas(int driver_version, std::string& why);

}  // namespace tessera::cuda
