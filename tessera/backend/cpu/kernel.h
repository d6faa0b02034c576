// SPDX-License-Identifier: Apache-2.0
// Kernels compiled for the CPU, and how a launch is divided among threads.
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

/// Runs on the launching thread, and also on the executor's threads if there is enough work. launch() returns when the
/// kernel has finished.
class CpuKernel : public LoadedKernel {
 public:
  virtual void launch(std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) = 0;
};

/// The target that kernels are lowered to.
emit::Target lowering_target(const TargetTraits& traits, const ir::Function& function, Variant variant);
/// Most shared memory of a block, bytes: a block's data should fit in the core's private cache.
inline constexpr std::uint64_t max_shared_bytes = 256 << 10;

/// Returns an image: machine code and the launch data of the lowered kernel. Throws KernelError with the generator's
/// message if it rejects the kernel.
std::string build_kernel(Generator& generator, const CompileRequest& request);
/// Loads an image. Throws FormatError if it is malformed, KernelError if it does not load.
std::unique_ptr<CpuKernel> load_kernel(Generator& generator, const CompileRequest& request, std::string_view image);
/// Same, run by the reference interpreter.
std::unique_ptr<CpuKernel> interpreted_kernel(const CompileRequest& request);

}  // namespace tessera::cpu
