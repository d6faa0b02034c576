// SPDX-License-Identifier: Apache-2.0
// The parts of emitted text that are specific to Metal: argument attributes, address spaces, atomics and shuffles.
// Types, constants and functions have the same names as in OpenCL C. Used only by the emitter.
#pragma once

#include <string>

#include "tessera/emit/dialect.h"

namespace tessera::emit {

/// Arguments that are not buffers are packed into a struct, in the order of EmittedKernel::arguments and aligned to
/// their sizes. Buffers are bound at the indices from 0 on, and the struct at the next index.
inline constexpr std::uint32_t metal_argument_buffers = 31;  ///< number of available indices (Metal Feature Set Tables)

/// Returns true if a parameter must not have this name, because it is a keyword or a name that all kernels use.
bool is_metal_keyword(const std::string& name);
std::string metal_index_text(ir::IndexKind kind, std::uint64_t dimension, const ir::Function& fn);
/// Returns the arguments for thread and block indices. Each argument is preceded by a comma and a line break.
std::string metal_index_arguments(const ir::Function& fn);

/// Returns the source of the kernels `tessera_copy` and `tessera_fill`, which copy and fill at any address and length.
/// Metal's own commands support neither unaligned ranges nor patterns of several bytes. The parameters are the buffers,
/// followed by the struct.
const char* metal_copy_and_fill();

}  // namespace tessera::emit
