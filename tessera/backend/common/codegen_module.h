// SPDX-License-Identifier: Apache-2.0
// Finds and opens the code-generation module, which holds LLVM and therefore is no part of the library itself.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/common/codegen.h"

namespace tessera::cpu {

/// A generator, or why there is none.
template <class G>
struct ModuleOf {
  G* generator = nullptr;
  bool opened = false;  ///< the file is the module, though it may have refused the target
  std::string file;     ///< that was opened, or tried last
  std::string build;    ///< os::build_id of the module, as it is loaded
  std::string reason;   ///< why there is no generator: the files tried, and the loader's or the module's text
};
using Module = ModuleOf<Generator>;
using PtxModule = ModuleOf<PtxGenerator>;

/// The files that the module may be, in order: where TESSERA_CODEGEN_LIBRARY says ("none": nowhere), else beside the
/// library or program this code is in, in ../lib of that folder, in lib/tessera beside it, and in the folder above.
std::vector<std::string> module_candidates();

/// Opens the module (once; it is never closed) and asks for a generator for `target` ("native" or a name of LLVM's).
/// OutOfMemory if there is a module and no memory for it; DeviceError if this process was forked in the middle of that.
Module open_module(const std::string& target);
/// Likewise, for PTX.
PtxModule open_ptx_module();

/// To be called before LLVM compiles functions of so many nodes in all, lowered: where memory runs out in its middle it
/// ends the process. OutOfMemory if there is too little; `name` is the kernel's, or the batch's.
void check_memory_to_compile(const std::string& name, std::size_t nodes);
/// Likewise, before an object of so many bytes is loaded.
void check_memory_to_load(const std::string& name, std::size_t bytes);
/// To be called before anything is asked of LLVM, and that then be done under os::ForkGuard: DeviceError if this
/// process was forked in the middle of such work of another thread, whose locks nobody will open.
void check_llvm_after_fork(const std::string& asked);
/// Throws that memory ran out nevertheless.
[[noreturn]] void throw_out_of_memory(const std::string& asked, std::uint64_t bytes);

}  // namespace tessera::cpu
