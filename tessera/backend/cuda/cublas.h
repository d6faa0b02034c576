// SPDX-License-Identifier: Apache-2.0
// Finds cuBLASLt, NVIDIA's matrix product library, in a version that matches the driver. Used within this folder and by
// its tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/device/blas.h"
#include "tessera/device/driver.h"

namespace tessera::cuda {

/// The file in TESSERA_CUBLAS_LIBRARY ("none": no file); by default the usual names, the toolkit's folders and Python
/// packages.
std::vector<std::string> cublas_candidates();

/// Opens the first library that loads and whose major version is not later than the driver's (in thousands), for the
/// current context's device. The library is opened once per process. Returns null and sets `why` if there is none.
/// Throws KernelError if it cannot be initialised.
std::unique_ptr<DriverBlas> open_cublas(int driver_version, std::string& why);

}  // namespace tessera::cuda
