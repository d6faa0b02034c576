// SPDX-License-Identifier: Apache-2.0
// Finds and opens the code-generation module, a separate library because it contains LLVM.
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
  std::string reason;   ///< why there is no generator: the files tried, and the error of the loader or the module
};
using Module = ModuleOf<Generator>;
using PtxModule = ModuleOf<PtxGenerator>;

/// Candidate files of the module, in order: TESSERA_CODEGEN_LIBRARY if set ("none": no candidates); otherwise, relative
/// to the folder of the library or program that contains this code: that folder, ../lib, tessera, ../lib/tessera and
/// the parent folder.
std::vector<std::string> module_candidates();

/// Opens the module (once; it is never closed) and gets a generator for `target` ("native" or an LLVM CPU name). Throws
/// OutOfMemory if there is a module but not enough memory for it, and DeviceError if this process was forked while
/// another thread was opening it.
Module open_module(const std::string& target);
/// Same, for PTX.
PtxModule open_ptx_module();

/// Call before LLVM compiles functions with this total number of nodes after lowering: LLVM ends the process if it runs
/// out of memory. Throws OutOfMemory if there is too little. `name`: the kernel or batch, for the message.
void check_memory_to_compile(const std::string& name, std::size_t nodes);
/// Same, before an object of this size in bytes is loaded.
void check_memory_to_load(const std::string& name, std::size_t bytes);
/// Call before any use of LLVM; the use itself runs under os::ForkGuard. Throws DeviceError if this process was forked
/// while another thread used LLVM, since the locks that it held are never released.
void check_llvm_after_fork(const std::string& asked);
/// Throws OutOfMemory, for LLVM running out of memory in spite of the checks above.
[[noreturn]] void throw_out_of_memory(const std::string& asked, std::uint64_t bytes);

}  // namespace tessera::cpu
