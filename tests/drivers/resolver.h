// SPDX-License-Identifier: Apache-2.0
// Linked into a test program, this tells fake drivers what each emitted kernel computes: launches are looked up by
// entry name and run in the interpreter. Tests of the fakes register C++ functions instead.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/drivers/kernel_abi.h"

namespace tessera::fake {

/// A hand-written kernel. `facts.kernel`, `.arguments` and `.argument_count` are filled in by the registration.
using HandWritten = std::function<void(std::span<const std::uint64_t> shape, const KernelValue* values)>;
void register_kernel(const std::string& entry, KernelFacts facts, std::vector<KernelArgument> arguments,
                     HandWritten body);

}  // namespace tessera::fake
