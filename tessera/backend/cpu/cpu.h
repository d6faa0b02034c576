// SPDX-License-Identifier: Apache-2.0
// The `cpu` backend: one device with all processors available to this process. The code-generation module compiles
// kernels to vector code. If the module is missing, the reference interpreter runs the kernels.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the driver of `cpu`. These environment variables are read when the device is enumerated or opened:
/// TESSERA_THREADS: number of threads that share a launch (default: the number of available cores).
/// TESSERA_CODEGEN_LIBRARY: file of the module (default: next to the library); "none": use the interpreter.
/// TESSERA_CPU_TARGET: LLVM name of the processor to compile for, such as "x86-64-v3" (default: this machine's).
std::unique_ptr<Driver> make_cpu_driver();

}  // namespace tessera
