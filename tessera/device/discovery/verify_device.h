// SPDX-License-Identifier: Apache-2.0
// The verification kernel of a device. It uses shared memory, a barrier, arithmetic and a bounds check, and its result
// is known. Internal to device/.
#pragma once

#include <string>
#include <vector>

#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel_cache.h"
#include "tessera/ir/node.h"

namespace tessera {

/// Runs the kernel. Returns an empty string if the result is correct, otherwise an error message. Throws the driver's
/// errors. With `counters`, the kernel may be loaded from the kernel cache. Without it, the kernel is always compiled,
/// which also tests the compiler, unless it is in the pack in use.
std::string verify_device(DriverDevice& device, KernelCounters* counters = nullptr);

/// Like verify_device, but runs a second kernel. Called in the helper process. The kernel uses math functions,
/// reductions and a loop over shared memory. Some compilers abort or generate wrong code for it although they compile
/// the first kernel correctly.
std::string verify_compiler(DriverDevice& device);

/// Returns the kernels that both functions run on a device with these capabilities.
std::vector<ir::Function> verify_kernels(const Capabilities& can);

/// Name of the first kernel, as it appears in drivers and logs.
inline constexpr const char* verify_kernel_name = "tessera_verify";

}  // namespace tessera
