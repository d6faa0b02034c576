// SPDX-License-Identifier: Apache-2.0
// Forward declarations of the kernel IR, so that a change of the IR does not recompile everything that launches
// kernels.
#pragma once

#include <cstdint>

namespace tessera::ir {

using NodeId = std::uint32_t;  ///< index into Function::nodes; 0 means none
/// How a kernel accesses a buffer.
enum class Access : std::uint8_t { read, read_write };
class Builder;
struct Function;
struct Hash;
struct Node;
struct SourceLine;

}  // namespace tessera::ir
