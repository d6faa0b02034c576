// SPDX-License-Identifier: Apache-2.0
// A kernel compiled for the CPU, and its launch: who runs which part of the grid.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tessera/backend/common/codegen.h"
#include "tessera/device/driver.h"
#include "tessera/emit/lower.h"
#include "tessera/executor/executor.h"
#include "tessera/ir/interpreter.h"

namespace tessera::cpu {

/// Runs on the thread that launches, on the executor's threads beside it when there is enough to do; returns when it is
/// done.
class CpuKernel : public LoadedKernel {
 public:
  virtual void launch(std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) = 0;
};

/// What kernels for a generator are lowered to.
emit::Target lowering_target(const TargetTraits& traits, const ir::Function& function, Variant variant);
/// Shared memory a block may use, bytes: a block's data should stay in a core's own cache.
inline constexpr std::uint64_t max_shared_bytes = 256 << 10;

/// Machine code with what launching needs of the lowered kernel. KernelError with the generator's text if it refuses.
std::string build_kernel(Generator& generator, const CompileRequest& request);
/// The kernel of such an image. FormatError if it is none, KernelError if it does not load.
std::unique_ptr<CpuKernel> load_kernel(Generator& generator, const CompileRequest& request, std::string_view image);
/// The same on the reference interpreter.
std::unique_ptr<CpuKernel> interpreted_kernel(const CompileRequest& request);

}  // namespace tessera::cpu
