// SPDX-License-Identifier: Apache-2.0
// The first kernel that runs on a device: shared memory, a barrier, arithmetic and a bounds guard, with a known result.
// Internal to device/.
#pragma once

#include <string>

#include "tessera/device/launch/kernel_cache.h"

namespace tessera {

/// Runs it; empty if the result is right, else a sentence that says what is wrong. Throws what the driver throws. With
/// `counters` the kernel may come from disk; without, the device's compiler is tried too.
std::string verify_device(DriverDevice& device, KernelCounters* counters = nullptr);

/// The same with a second kernel, for a process of its own: functions, reductions and a loop over shared memory, on
/// which compilers have been seen to abort or to compute wrongly though they build the first.
std::string verify_compiler(DriverDevice& device);

/// The kernel's name, by which drivers and logs know it.
inline constexpr const char* verify_kernel_name = "tessera_verify";

}  // namespace tessera
