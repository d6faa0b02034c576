// SPDX-License-Identifier: Apache-2.0
// Emits lowered kernels as readable C in one of the dialects. Names of the kernel and its parameters are kept, values
// used once are inlined, and parentheses appear only where needed. Deterministic: the same function gives the same text
// on every host.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/emit/dialect.h"

namespace tessera::emit {

/// One argument of an emitted kernel, in call order.
struct KernelArgument {
  enum class Kind : std::uint8_t {
    pointer,  ///< to buffer `number`
    offset,   ///< of buffer `number` in elements, 64 bits; only in dialects with `offsets`
    length,   ///< of buffer `number` in elements; i32 or i64, like `index`
    scalar,   ///< parameter `number`, of `dtype` (boolean: one byte)
    extent    ///< of dimension `number` of a map kernel, i32 or i64
  };
  Kind kind;
  std::uint32_t number;
  DType dtype;
};

struct EmittedKernel {
  std::string entry;  ///< sanitised name and part of the hash
  std::vector<KernelArgument> arguments;
  std::array<bool, 3> dimensions = {
      true, false, false};  ///< map kernels: guarded dimensions; the others are launched at exactly their extent
  bool flat = false;        ///< launched with all threads of a block in the first dimension
  std::size_t dynamic_shared_bytes = 0;  ///< CUDA and HIP above 48 KiB
  std::string text;                      ///< this kernel, without the functions that it calls
  std::string prelude;                   ///< the functions that it calls
  /// A complete program with only this kernel, ready for a compiler.
  std::string program() const { return prelude + "\n" + text; }
};

/// One program with any number of kernels.
struct EmittedSource {
  std::string text;
  std::vector<EmittedKernel> kernels;  ///< in the order of the requests; equal kernels share their entry
};

struct EmitRequest {
  const ir::Function* function;  ///< the result of `lower` for `target_of(dialect)`
  bool noalias = true;           ///< the buffers do not overlap
};

/// Throws KernelError with the kernel's name if it contains something that the dialect cannot express.
EmittedSource emit_c(std::span<const EmitRequest> requests, const Dialect& dialect);

/// Called with every emitted kernel and its function, on the emitting thread. Tests that fake a driver use it to find
/// the function to execute when `kernel.entry` is launched. Null: no observer.
using EmitObserver = void (*)(const EmittedKernel& kernel, const ir::Function& function);
void observe_emission(EmitObserver observer);
bool emission_is_observed();

/// Converts a kernel name to an identifier; other characters become '_'.
std::string identifier(std::string_view name);

}  // namespace tessera::emit
