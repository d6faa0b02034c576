// SPDX-License-Identifier: Apache-2.0
// Builds programs from compile requests, for all backends that compile C text. Lowers the kernels for the device, emits
// all of them into one program, and builds the program. If the build fails, each kernel is built separately to find the
// one that causes the error. Used only in tessera/backend.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// A program to build: the text of one or more kernels, and the requests that they were emitted from.
struct Program {
  const emit::EmittedSource& source;
  std::span<const emit::EmitRequest> requests;  ///< lowered; in the order of source.kernels
  std::string subject;                          ///< "kernel softmax", or "4 kernels"
  /// True if the kernels of the program are exact (ir::Function::exact). A program never mixes exact kernels with
  /// others, because NVRTC disables contraction only for a whole program.
  bool exact = false;
  const std::string& text() const { return source.text; }
};
/// Builds one program. Returns null and sets `log` if the compiler rejected the program. Throws on other errors.
using BuildProgram = std::function<std::shared_ptr<void>(const Program& program, std::string& log)>;

struct BuiltKernel {
  std::shared_ptr<void> program;  ///< from BuildProgram; shared by all kernels of a batch
  emit::EmittedKernel emitted;
};

/// Returns the target to which kernels are lowered on a device.
emit::Target target_for(const emit::Dialect& dialect, const Capabilities& can, Variant variant);
/// Returns the text and launch data of a kernel. Throws KernelError if the kernel needs a feature that the device
/// lacks.
emit::EmittedKernel emitted_kernel(const CompileRequest& request, const emit::Dialect& dialect, const DeviceInfo& info);

/// Builds one kernel per request. Throws KernelError if a kernel needs a feature that the device lacks, if its blocks
/// are too large, or if the compiler rejects it. The message then contains the compiler's log and the source lines that
/// the log refers to.
std::vector<BuiltKernel> build_kernels(std::span<const CompileRequest> requests, const emit::Dialect& dialect,
                                       const DeviceInfo& info, const BuildProgram& build);

}  // namespace tessera::backend
