// SPDX-License-Identifier: Apache-2.0
// The `cpu` backend: one device, the processors this process may use, with kernels compiled to vector code by the
// code-generation module, or run by the reference interpreter where the module is not there.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// The driver of `cpu`. Reads when a device is enumerated or opened:
/// TESSERA_THREADS: threads that share the work of a launch (else as many as cores may be used).
/// TESSERA_CODEGEN_LIBRARY: the module's file (else beside the library); "none": the interpreter, as without the
/// module. TESSERA_CPU_TARGET: a processor that code is made for, in LLVM's names ("x86-64-v3"; else this machine's).
std::unique_ptr<Driver> make_cpu_driver();

}  // namespace tessera
