// SPDX-License-Identifier: Apache-2.0
// Kernels for the CPU. A launch is divided among threads.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tessera/backend/common/codegen.h"
#include "tessera/backend/cpu/code_target.h"
#include "tessera/device/driver.h"
#include "tessera/emit/lower.h"
#include "tessera/executor/executor.h"
#include "tessera/ir/interpreter.h"

namespace tessera::cpu {

/// A kernel that runs on the launching thread. If there is enough work, the executor's threads take part. launch()
/// returns when the kernel has finished.
class CpuKernel : public LoadedKernel {
 public:
  virtual void launch(std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) = 0;
};

/// Returns the target to which kernels are lowered.
emit::Target lowering_target(const TargetTraits& traits, const ir::Function& function, Variant variant);
/// Maximum size in bytes of a block's shared memory. The data of a block should fit in the private cache of a core.
/// 264 KiB are enough for two buffers of a cache line's width with 1024 complex numbers each, and their padding.
inline constexpr std::uint64_t max_shared_bytes = 264 << 10;

/// Compiles a kernel to an image, which contains its machine code and launch data. Throws KernelError with the
/// generator's message if the generator rejects the kernel.
std::string build_kernel(Generator& generator, const CompileRequest& request);
/// Loads an image. `target` is the one that it was built for; null if the image is from a pack. Throws FormatError if
/// it is malformed and KernelError if it cannot be loaded.
std::unique_ptr<CpuKernel> load_kernel(std::shared_ptr<const CodeTarget> target, const CompileRequest& request,
                                       std::string_view image);
/// Returns a kernel that runs on the reference interpreter instead.
std::unique_ptr<CpuKernel> interpreted_kernel(const CompileRequest& request);

}  // namespace tessera::cpu
