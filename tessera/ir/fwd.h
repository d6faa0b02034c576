// SPDX-License-Identifier: Apache-2.0
// Forward declarations of the kernel IR. Files that only launch kernels include this, so that they are not recompiled
// when the IR changes.
#pragma once

#include <cstdint>

namespace tessera::ir {

using NodeId = std::uint32_t;  ///< index into Function::nodes; 0 means no node
/// How a kernel accesses a buffer.
enum class Access : std::uint8_t { read, read_write };
class Builder;
struct Function;
struct Hash;
struct Node;
struct SourceLine;
enum class FragmentLayout : std::uint8_t;

}  // namespace tessera::ir
