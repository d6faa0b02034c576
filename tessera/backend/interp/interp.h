// SPDX-License-Identifier: Apache-2.0
// The `interp` backend: the reference interpreter as a device. It is used only if you name it. It runs each launch on
// the calling thread, in host memory, and can check kernels for errors.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Environment variables, read when the device is listed or opened:
///   TESSERA_CHECK=1     checks every kernel for out-of-bounds accesses, races, reads of uninitialised memory,
///                       divergent control flow and index overflow; the launch throws KernelError for the first
///                       error found. Downloads of memory that was never written throw ArgumentError. Copies from
///                       other devices, and host_access, count as writes
///   TESSERA_SUBGROUP=n  threads per subgroup, 1 to 128 (default 32). A list such as 32,1,8,64 creates one device
///                       per width, starting with interp:0
/// If a variable is invalid, opening throws ArgumentError, and enumeration reports it as the reason.
std::unique_ptr<Driver> make_interp_driver();

}  // namespace tessera
