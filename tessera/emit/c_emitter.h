// SPDX-License-Identifier: Apache-2.0
// Emits lowered kernels as readable C in one of the dialects. The text uses the names of the kernel and its parameters,
// inlines values that are used once, and has few parentheses. The output is deterministic: the same function produces
// the same text on every host.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/emit/dialect.h"

namespace tessera::emit {

/// An argument of an emitted kernel.
struct KernelArgument {
  enum class Kind : std::uint8_t {
    pointer,  ///< the address of buffer `number`
    offset,   ///< offset into buffer `number` in elements, 64 bits; only in dialects with `offsets`
    length,   ///< length of buffer `number` in elements; i32 or i64, like `index`
    scalar,   ///< parameter `number` with this `dtype` (boolean: one byte)
    extent    ///< extent of dimension `number` of a map kernel, i32 or i64
  };
  Kind kind;
  std::uint32_t number;
  DType dtype;
};

struct EmittedKernel {
  std::string entry;  ///< the kernel's name as an identifier, with a part of its hash
  std::vector<KernelArgument> arguments;
  /// Map kernels: the dimensions with a bounds check. In other dimensions, the number of threads must equal the extent.
  std::array<bool, 3> dimensions = {true, false, false};
  bool flat = false;                     ///< the launch puts all threads of a block into the first dimension
  std::size_t dynamic_shared_bytes = 0;  ///< CUDA and HIP: used above 48 KiB
  std::string text;                      ///< the kernel without the helper functions that it calls
  std::string prelude;                   ///< the helper functions that it calls
  /// Returns a complete program that contains only this kernel.
  std::string program() const { return prelude + "\n" + text; }
};

/// A program with one or more kernels.
struct EmittedSource {
  std::string text;
  std::vector<EmittedKernel> kernels;  ///< in the order of the requests; equal kernels have the same entry
};

struct EmitRequest {
  const ir::Function* function;  ///< the result of `lower` for `target_of(dialect)`
  bool noalias = true;           ///< the buffers do not overlap
};

/// Emits all kernels into one program. Throws KernelError with the name of the kernel if the dialect does not support
/// one of its operations.
EmittedSource emit_c(std::span<const EmitRequest> requests, const Dialect& dialect);

/// The observer is called with every emitted kernel and its function, on the thread that emits it. Tests with fake
/// drivers use this to find the function to run when `kernel.entry` is launched. Null removes the observer.
using EmitObserver = void (*)(const EmittedKernel& kernel, const ir::Function& function);
void observe_emission(EmitObserver observer);
bool emission_is_observed();

/// Converts a kernel name to an identifier. Characters that are not allowed become '_'.
std::string identifier(std::string_view name);

}  // namespace tessera::emit
