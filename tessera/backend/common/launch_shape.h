// SPDX-License-Identifier: Apache-2.0
// Launch code shared by the backends that compile C text. Computes the grid and sorts the arguments into the emitter's
// order. Used only in tessera/backend.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// The data that a launch needs in addition to the driver's kernel object.
struct KernelShape {
  KernelShape(const ir::Function& function, emit::EmittedKernel emitted, bool index64);
  std::string name;
  ir::KernelKind kind;
  std::array<std::uint32_t, 3> block;
  std::vector<ir::Param> params;  ///< the parameters before lowering
  emit::EmittedKernel emitted;
  bool index64;
};

struct Grid {
  std::array<std::uint64_t, 3> blocks{};
  std::array<std::uint64_t, 3> block{};
};

/// Returns the grid for a launch of `shape` (see DriverQueue::launch) with at most `block_threads` threads in a block.
/// Map kernels use few different block sizes, because some compilers recompile a kernel for each size. Excess threads
/// are skipped by the bounds check that lowering adds. If the grid has too many blocks in a dimension, the blocks are
/// made larger in that dimension. Throws KernelError if the grid still does not fit, or if the number of threads does
/// not fit in 32-bit indices.
Grid grid_of(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape, const Capabilities& can,
             std::uint64_t block_threads);

/// Returns the grid for a launch of a kernel that is not compiled for a device in this machine.
Grid grid_of(const CompileRequest& request, const emit::Dialect& dialect, const DeviceInfo& info,
             const std::array<std::uint64_t, 3>& shape);

/// One argument of the emitted kernel, with the parameter that it belongs to.
struct BoundArgument {
  emit::KernelArgument::Kind kind;
  std::uint32_t param = 0;  ///< index of the parameter; params.size() for extents
  std::uint32_t bytes = 0;
  std::uint64_t value = 0;        ///< the low `bytes` are the argument; for pointers, the allocation's handle
  std::uint64_t byte_offset = 0;  ///< pointers: offset of the buffer in the allocation
};

/// Writes the arguments to `to` in the order of `kernel.emitted.arguments`. Clears `to` first and reuses its memory.
/// Throws KernelError if the number of arguments is wrong, an argument is in host memory, the offset of a buffer is not
/// a multiple of its element size, or a size does not fit in the kernel's index type.
void bind_arguments(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape,
                    std::span<const Argument> arguments, std::vector<BoundArgument>& to);

}  // namespace tessera::backend
