// SPDX-License-Identifier: Apache-2.0
// NVIDIA's library of matrix products, cuBLASLt: found, and fitted to the driver. Used within this folder and by its
// tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/device/blas.h"

namespace tessera::cuda {

/// The file that TESSERA_CUBLAS_LIBRARY names (none if that is "none"), else the usual ones: by name, in the toolkit's
/// folders, in Python's packages.
std::vector<std::string> cublas_candidates();

/// The first of these that loads and is not of a later major version than the driver (in thousands), opened once a
/// process, for the current context's device. Null if there is none, and why. KernelError if it does not start.
std::unique_ptr<DriverBlas> open_cublas(int driver_version, std::string& why);

}  // namespace tessera::cuda
