// SPDX-License-Identifier: Apache-2.0
// Builds programs from compile requests, for all backends that compile C text: lowers for the device, emits all kernels
// into one program and builds it. If that fails, builds each kernel alone to find the one at fault. Used by the
// backends' folders only.
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
  std::span<const emit::EmitRequest> requests;  ///< lowered; parallel to source.kernels
  std::string subject;                          ///< "kernel softmax", or "4 kernels"
  /// Whether all kernels of the program are exact (ir::Function::exact); otherwise none is. NVRTC has an option for
  /// this, but no pragma.
  bool exact = false;
  const std::string& text() const { return source.text; }
};
/// Builds one program. Returns null if the compiler rejected it, with the reason in `log`; throws on other errors.
using BuildProgram = std::function<std::shared_ptr<void>(const Program& program, std::string& log)>;

struct BuiltKernel {
  std::shared_ptr<void> program;  ///< as returned by BuildProgram; kernels of one batch share it
  emit::EmittedKernel emitted;
};

/// The target that kernels are lowered to on a device.
emit::Target target_for(const emit::Dialect& dialect, const Capabilities& can, Variant variant);
/// Returns a kernel's text and launch data. Throws KernelError if it needs a feature that the device lacks.
emit::EmittedKernel emitted_kernel(const CompileRequest& request, const emit::Dialect& dialect, const DeviceInfo& info);

/// Returns one kernel per request. Throws KernelError if a kernel needs a feature that the device lacks, if its blocks
/// are too large, or if the compiler rejects it (with the log and the source lines that it refers to).
std::vector<BuiltKernel> build_kernels(std::span<const CompileRequest> requests, const emit::Dialect& dialect,
                                       const DeviceInfo& info, const BuildProgram& build);

}  // namespace tessera::backend
