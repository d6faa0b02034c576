// SPDX-License-Identifier: Apache-2.0
// What every API that takes C text has in common when it launches a kernel: the grid, and the arguments in the order
// that the emitter chose. Used by the backends' folders only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// What a launch needs to know of a kernel, beside the driver's own object for it.
struct KernelShape {
  KernelShape(const ir::Function& function, emit::EmittedKernel emitted, bool index64);
  std::string name;
  ir::KernelKind kind;
  std::array<std::uint32_t, 3> block;
  std::vector<ir::Param> params;  ///< as written: before lowering
  emit::EmittedKernel emitted;
  bool index64;
};

struct Grid {
  std::array<std::uint64_t, 3> blocks{};
  std::array<std::uint64_t, 3> block{};
};

/// Blocks for a launch of `shape` (as DriverQueue::launch has it). Map kernels get few different sizes of blocks, since
/// some compilers compile a kernel anew for each; lowering's guard cuts off what is over. Where a dimension would need
/// more blocks than the device takes, blocks grow in that dimension. KernelError if even so it does not fit, or if
/// 32-bit indices cannot count the threads. `block_threads`: as many as this kernel may have in a block.
Grid grid_of(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape, const Capabilities& can,
             std::uint64_t block_threads);

/// One argument of the emitted kernel: the bytes to hand over, and which parameter they belong to.
struct BoundArgument {
  emit::KernelArgument::Kind kind;
  std::uint32_t param = 0;  ///< number of the parameter; of params.size() for extents
  std::uint32_t bytes = 0;
  std::uint64_t value = 0;        ///< the low `bytes` are the argument; of pointers: the allocation's handle
  std::uint64_t byte_offset = 0;  ///< pointers: where the buffer begins in the allocation
};

/// The arguments in the order of `kernel.emitted.arguments`, put into `to` (cleared first, so that its memory is used
/// again). KernelError: another number of arguments than parameters, memory of the host, a buffer that does not begin
/// at a whole element, a size that does not fit the kernel's indices.
void bind_arguments(const KernelShape& kernel, const std::array<std::uint64_t, 3>& shape,
                    std::span<const Argument> arguments, std::vector<BoundArgument>& to);

}  // namespace tessera::backend
