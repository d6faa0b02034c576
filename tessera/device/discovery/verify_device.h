// SPDX-License-Identifier: Apache-2.0
// The first kernel on a device: shared memory, a barrier, arithmetic and a bounds check, with a known result. Internal
// to device/.
#pragma once

#include <string>

#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel_cache.h"

namespace tessera {

/// Runs the kernel. Returns an empty string if the result is correct, else a message. Throws the driver's errors. With
/// `counters` the kernel may come from the kernel cache; without, it is compiled, which also tests the compiler.
std::string verify_device(DriverDevice& device, KernelCounters* counters = nullptr);

/// Like verify_device, with a second kernel; for the helper process. It uses functions, reductions and a loop over
/// shared memory, for which compilers have been seen to abort or generate wrong code although they compile the first.
std::string verify_compiler(DriverDevice& device);

/// Name of the first kernel in drivers and logs.
inline constexpr const char* verify_kernel_name = "tessera_verify";

}  // namespace tessera
