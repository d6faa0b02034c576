// SPDX-License-Identifier: Apache-2.0
// The processor that kernels are compiled for, and the code-generation module that compiles them. Both are cached on
// disk, so that a process whose kernels are all in the kernel cache does not load the module with LLVM.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "tessera/backend/common/codegen.h"

namespace tessera::cpu {

/// A processor, and the module that generates code for it.
struct CodeTarget {
  std::string asked;                   ///< "native" or LLVM's name of a processor
  std::optional<TargetTraits> traits;  ///< std::nullopt: there is no module, or it rejected the target
  std::string version;                 ///< "LLVM 16.0.6"
  std::string file;                    ///< the module's file, or the last one tried
  std::string build;                   ///< os::build_id of the module
  std::string reason;                  ///< why there are no traits; see ModuleOf
  bool opened = false;                 ///< true if the file is a module, even if it rejected the target
  mutable std::atomic<Generator*> generator = nullptr;  ///< null until generator_of() has opened the module
};

/// Returns the target `asked`. Reads it from the cache on disk if neither the module's file nor the processor has
/// changed since it was written; else opens the module. Throws like open_module().
std::shared_ptr<const CodeTarget> find_code_target(const std::string& asked);

/// Returns the generator of `target`, which must have traits. The first call opens the module. Throws KernelError for
/// the kernel `name` if the module cannot be opened any more or is not the one that `target` describes.
Generator& generator_of(const CodeTarget& target, const std::string& name);

}  // namespace tessera::cpu
