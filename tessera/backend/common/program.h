// SPDX-License-Identifier: Apache-2.0
// From requests to built programs for every API that takes C text: lower for the device, emit all into one program,
// build; if that fails, each alone, to name the guilty. Used by the backends' folders only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// What is to be built: the text of one or more kernels, and what they were written from.
struct Program {
  const emit::EmittedSource& source;
  std::span<const emit::EmitRequest> requests;  ///< lowered; beside source.kernels
  std::string subject;                          ///< "kernel softmax", or "4 kernels"
  /// All kernels of a program are (ir::Function::exact), or none: NVRTC has an option for it, and no pragma.
  bool exact = false;
  const std::string& text() const { return source.text; }
};
/// Builds one. Null if the compiler refused it, with the reason in `log`; anything else that goes wrong throws.
using BuildProgram = std::function<std::shared_ptr<void>(const Program& program, std::string& log)>;

struct BuiltKernel {
  std::shared_ptr<void> program;  ///< as the function made it; kernels of one batch share theirs
  emit::EmittedKernel emitted;
};

/// What kernels are lowered to for a device.
emit::Target target_for(const emit::Dialect& dialect, const Capabilities& can, Variant variant);
/// A kernel's text, and how it is launched. KernelError if it needs what the device lacks.
emit::EmittedKernel emitted_kernel(const CompileRequest& request, const emit::Dialect& dialect, const DeviceInfo& info);

/// One for each request. KernelError: a kernel needs what the device lacks, its blocks are too large, or the compiler
/// refused it: then with the compiler's log and the lines it points at.
std::vector<BuiltKernel> build_kernels(std::span<const CompileRequest> requests, const emit::Dialect& dialect,
                                       const DeviceInfo& info, const BuildProgram& build);

}  // namespace tessera::backend
