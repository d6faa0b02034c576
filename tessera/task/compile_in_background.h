// SPDX-License-Identifier: Apache-2.0
// Kernels that tasks are going to launch, compiled by whichever thread has nothing to do. Internal.
#pragma once

#include "tessera/device/device.h"

namespace tessera {
class Kernel;
}

namespace tessera::detail {

/// A task of the kernel is being made for this device: the first time it is compiled while others run, unless it has
/// been. Not for devices that are built in, whose tasks compile their kernels themselves, and not where each task runs
/// as it is made. What is wrong with it the task tells.
void compile_in_background(const Kernel& kernel, Device device);

}  // namespace tessera::detail
