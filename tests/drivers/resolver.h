// SPDX-License-Identifier: Apache-2.0
// Linked into a test program, this gives fake drivers the meaning of every kernel that the program emits: a launch is
// looked up by its entry name and run by the interpreter. Tests of the fakes register C++ functions instead.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/drivers/kernel_abi.h"

namespace tessera::fake {

/// A kernel written by hand. `facts.kernel`, `.arguments` and `.argument_count` are filled in here.
using HandWritten = std::function<void(std::span<const std::uint64_t> shape, const KernelValue* values)>;
void register_kernel(const std::string& entry, KernelFacts facts, std::vector<KernelArgument> arguments,
                     HandWritten body);

}  // namespace tessera::fake
