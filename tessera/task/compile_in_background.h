// SPDX-License-Identifier: Apache-2.0
// Compiles kernels that tasks are about to launch on idle threads. Internal.
#pragma once

#include "tessera/device/device.h"

namespace tessera {
class Kernel;
}

namespace tessera::detail {

/// Called when a task with this kernel is created for the device. The first call compiles the kernel in a background
/// task, unless it is already compiled. Does nothing on built-in devices, whose tasks compile their own kernels, and
/// with TESSERA_TASKS=serial. Errors are reported by the task that launches the kernel.
void compile_in_background(const Kernel& kernel, Device device);

}  // namespace tessera::detail
