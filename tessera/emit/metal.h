// SPDX-License-Identifier: Apache-2.0
// What is Metal's alone in emitted text: attributes of arguments, address spaces, atomics and shuffles. Types,
// constants and names of functions are those of OpenCL C. Used by the emitter only.
#pragma once

#include <string>

#include "tessera/emit/dialect.h"

namespace tessera::emit {

/// The arguments of a kernel that are no buffers lie in one structure, in the order of EmittedKernel::arguments, each
/// aligned to its size; it is bound behind the buffers, which have the indices from 0 on.
inline constexpr std::uint32_t metal_argument_buffers = 31;  ///< indices that there are (Metal Feature Set Tables)

/// Whether no parameter may be called so: a word of the language or a name in every kernel.
bool is_metal_keyword(const std::string& name);
std::string metal_index_text(ir::IndexKind kind, std::uint64_t dimension, const ir::Function& fn);
/// The arguments that hold thread and block indices, each on a line behind a comma.
std::string metal_index_arguments(const ir::Function& fn);

/// Kernels `tessera_copy` and `tessera_fill` of whole libraries of their own, for what Metal's copies and fills do not:
/// any address, any length, patterns of several bytes. Buffers come first, then the structure.
const char* metal_copy_and_fill();

}  // namespace tessera::emit
