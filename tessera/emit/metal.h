// SPDX-License-Identifier: Apache-2.0
// The parts of emitted text that are specific to Metal: argument attributes, address spaces, atomics and shuffles.
// Types, constants and function names are those of OpenCL C. Used by the emitter only.
#pragma once

#include <string>

#include "tessera/emit/dialect.h"

namespace tessera::emit {

/// A kernel's non-buffer arguments are packed into one structure in the order of EmittedKernel::arguments, each aligned
/// to its size. It is bound after the buffers, whose indices start at 0.
inline constexpr std::uint32_t metal_argument_buffers = 31;  ///< available indices (Metal Feature Set Tables)

/// Whether a parameter must not have this name: a keyword, or a name used in every kernel.
bool is_metal_keyword(const std::string& name);
std::string metal_index_text(ir::IndexKind kind, std::uint64_t dimension, const ir::Function& fn);
/// The arguments for thread and block indices, each on a line after a comma.
std::string metal_index_arguments(const ir::Function& fn);

/// Source of the kernels `tessera_copy` and `tessera_fill`, each in its own library, for copies and fills that Metal's
/// commands do not support: any address, any length, patterns of several bytes. Buffers come first, then the structure.
const char* metal_copy_and_fill();

}  // namespace tessera::emit
