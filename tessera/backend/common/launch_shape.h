// SPDX-License-Identifier: Apache-2.0
// Launch code shared by the backends that compile C text: the grid, and the arguments in the emitter's order. Used by
// the backends' folders only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// Properties of a kernel that a launch needs, in addition to the driver's kernel object.
struct KernelShape {
  KernelShape(const ir::Function& function, emit::EmittedKernel emitted, bool index64);
  std::string name;
  ir::KernelKind kind;
  std::array<std::uint32_t, 3> block;
  std::vector<ir::Param> params;  ///< as written, before lowering
  emit::EmittedKernel emitted;
  bool index64;
};

struct Grid {
  std::array<std::uint64_t, 3> blocks{};
  std::array<std::uint64_t, 3> block{};
};

/// Returns the blocks for a launch of `shape` (see DriverQueue::launch). Map kernels use few different block sizes,
/// since some compilers recompile a kernel for each; the guard that lowering adds skips excess threads. Blocks grow in
/// a dimension in which the device would not accept the number of blocks. Throws KernelError if the grid still does not
/// fit, or if 32-bit indices cannot count the threads. `block_threads`: the most threads that this kernel may have in a
/// block.
Grid grid_of(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape, const Capabilities& can,
             std::uint64_t block_threads);

/// One argument of the emitted kernel: its bytes, and the parameter that it belongs to.
struct BoundArgument {
  emit::KernelArgument::Kind kind;
  std::uint32_t param = 0;  ///< index of the parameter; params.size() for extents
  std::uint32_t bytes = 0;
  std::uint64_t value = 0;        ///< the low `bytes` are the argument; for pointers, the allocation's handle
  std::uint64_t byte_offset = 0;  ///< pointers: offset of the buffer in the allocation
};

/// Writes the arguments to `to` in the order of `kernel.emitted.arguments`. `to` is cleared first, so that its memory
/// is reused. Throws KernelError if the number of arguments is wrong, an argument is host memory, a buffer does not
/// begin at a whole element, or a size does not fit in the kernel's indices.
void bind_arguments(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape,
                    std::span<const Argument> arguments, std::vector<BoundArgument>& to);

}  // namespace tessera::backend
