// SPDX-License-Identifier: Apache-2.0
// Names of the kernel IR for headers that only pass them on, so that a change to the IR does not recompile everything
// that launches a kernel.
#pragma once

#include <cstdint>

namespace tessera::ir {

using NodeId = std::uint32_t;  ///< position in Function::nodes; 0 means none
/// What a kernel does with a buffer.
enum class Access : std::uint8_t { read, read_write };
class Builder;
struct Function;
struct Hash;
struct Node;
struct SourceLine;

}  // namespace tessera::ir
