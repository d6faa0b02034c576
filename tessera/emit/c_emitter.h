// SPDX-License-Identifier: Apache-2.0
// Lowered kernels as readable C in one of the dialects: names of the kernel and its parameters are kept, values used
// once stand where they are used, and parentheses only where they are needed. The same function gives the same text
// everywhere.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/emit/dialect.h"

namespace tessera::emit {

/// One argument of an emitted kernel, in the order of the call.
struct KernelArgument {
  enum class Kind : std::uint8_t {
    pointer,  ///< of buffer `number`
    offset,   ///< of buffer `number` in elements, 64 bits; only in dialects with `offsets`
    length,   ///< of buffer `number` in elements, i32 or i64 as `index` is
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
      true, false, false};  ///< map kernels: those that are guarded; the others are launched at exactly their extent
  bool flat = false;        ///< launched with all threads of a block in the first dimension
  std::size_t dynamic_shared_bytes = 0;  ///< CUDA and HIP past 48 KiB
  std::string text;                      ///< of this kernel, without the functions that it calls
  std::string prelude;                   ///< these
  /// A whole program of this kernel alone, as a compiler takes it.
  std::string program() const { return prelude + "\n" + text; }
};

/// One program for any number of kernels.
struct EmittedSource {
  std::string text;
  std::vector<EmittedKernel> kernels;  ///< beside the requests; equal ones share their entry
};

struct EmitRequest {
  const ir::Function* function;  ///< as `lower` made it for `target_of(dialect)`
  bool noalias = true;           ///< the buffers do not overlap
};

/// KernelError names the kernel if it holds something that the dialect has no word for.
EmittedSource emit_c(std::span<const EmitRequest> requests, const Dialect& dialect);

/// Sees every kernel that is emitted beside the function it stands for, on the thread that emits. Tests that stand in
/// for a driver execute the function when the driver is asked to launch `kernel.entry`. Null: nobody watches.
using EmitObserver = void (*)(const EmittedKernel& kernel, const ir::Function& function);
void observe_emission(EmitObserver observer);
bool emission_is_observed();

/// The name of a kernel as an identifier: other characters become '_'.
std::string identifier(std::string_view name);

}  // namespace tessera::emit
