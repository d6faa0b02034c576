// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels of tasks on idle threads before the tasks run. Internal.
#pragma once

#include "tessera/device/device.h"

namespace tessera {
class Kernel;
}

namespace tessera::detail {

/// Called when a task with this kernel is created for the device. The first call starts a background task that compiles
/// the kernel, unless it is already compiled. Does nothing with TESSERA_TASKS=serial, and on built-in devices, because
/// their tasks compile their own kernels. Errors are reported by the task that launches the kernel.
void compile_in_background(const Kernel& kernel, Device device);

}  // namespace tessera::detail
