// SPDX-License-Identifier: Apache-2.0
// Machine code of a kernel from a pack. It is loaded without the code-generation module, which may be absent.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/backend/common/codegen.h"

namespace tessera::cpu {

/// Loads the kernel `name` from an object file. Throws FormatError, KernelError and OutOfMemory like os::ObjectCode.
std::unique_ptr<Compiled> load_packed_code(std::string_view object, const std::string& name);

}  // namespace tessera::cpu
