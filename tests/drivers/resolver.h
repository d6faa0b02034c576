// SPDX-License-Identifier: Apache-2.0
// Linked into test programs, so that fake drivers can run the kernels that the program emits. Launches look up a kernel
// by its entry and run it in the interpreter. Tests of the fake drivers register C++ functions instead.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/drivers/kernel_abi.h"

namespace tessera::fake {

/// A kernel written in C++. register_kernel() sets `kernel`, `arguments` and `argument_count` in `facts`.
using HandWritten = std::function<void(std::span<const std::uint64_t> shape, const KernelValue* values)>;
void register_kernel(const std::string& entry, KernelFacts facts, std::vector<KernelArgument> arguments,
                     HandWritten body);

}  // namespace tessera::fake
