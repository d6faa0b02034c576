// SPDX-License-Identifier: Apache-2.0
// Finds and opens the code-generation module. The module is a separate library because it contains LLVM.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/common/codegen.h"

namespace tessera::cpu {

/// A generator, or the reason why there is none.
template <class G>
struct ModuleOf {
  G* generator = nullptr;
  bool opened = false;  ///< true if the file is the module, even if it rejected the target
  std::string file;     ///< the file that was opened, or the last one tried
  std::string build;    ///< os::build_id of the loaded module
  std::string reason;   ///< why there is no generator: lists the files tried, and the error of the loader or the module
};
using Module = ModuleOf<Generator>;
using PtxModule = ModuleOf<PtxGenerator>;

/// Returns the files where the module may be, in the order in which they are tried. If TESSERA_CODEGEN_LIBRARY is set,
/// the result contains only this file ("none" disables the module). Otherwise it contains files in the folder of the
/// library or program that contains this code, and in these folders relative to it: ../lib, tessera, ../lib/tessera and
/// the parent folder.
std::vector<std::string> module_candidates();

/// Opens the module and gets a generator for `target` ("native" or an LLVM CPU name). The module is opened once per
/// process and never closed. If `runs_here` is false, this machine's processor need not have the features of the
/// target. Throws OutOfMemory if there is a module but not enough memory to load it. Throws
/// DeviceError if this process was forked while another thread was opening the module.
Module open_module(const std::string& target, bool runs_here = true);
/// Like open_module(), but gets the PTX generator.
PtxModule open_ptx_module();

/// Returns the memory that only compiling needs to the system: freed memory, and the pages of the module's code.
void trim_module() noexcept;

/// Throws OutOfMemory if there is not enough memory to compile functions with this total number of nodes after
/// lowering. Call it before LLVM compiles, because LLVM ends the process if it runs out of memory. `name` is the kernel
/// or batch in the error message.
void check_memory_to_compile(const std::string& name, std::size_t nodes);
/// Throws DeviceError if this process was forked while another thread used LLVM, because the locks of that thread are
/// never released in the child. Call it before any use of LLVM, and use LLVM only under os::ForkGuard.
void check_llvm_after_fork(const std::string& asked);
/// Throws OutOfMemory. Call it if LLVM runs out of memory even though the checks above passed.
[[noreturn]] void throw_out_of_memory(const std::string& asked, std::uint64_t bytes);

}  // namespace tessera::cpu
