// SPDX-License-Identifier: Apache-2.0
// Machine code of a kernel in memory. It is loaded without the code-generation module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/backend/common/codegen.h"
#include "tessera/base/os/object_code.h"

namespace tessera::cpu {

/// The machine code of a kernel. The destructor frees its memory.
class MachineCode {
 public:
  /// Loads the kernel `name` from an object file. Throws FormatError, KernelError and OutOfMemory like os::ObjectCode.
  MachineCode(std::string_view object, const std::string& name);
  KernelEntry entry() const { return entry_; }

 private:
  os::ObjectCode code_;
  KernelEntry entry_;
};

}  // namespace tessera::cpu
