// SPDX-License-Identifier: Apache-2.0
// Compilers for GPUs that are not in this machine.
#pragma once

#include <cstdint>

namespace tessera {

/// Which compiler compiles for a GPU that is not in this machine.
enum class TargetCompiler : std::uint8_t {
  automatic,  ///< The one that Tessera would use on a machine with the GPU: NVRTC if it is installed.
  vendor,     ///< NVRTC for NVIDIA GPUs, clang for AMD GPUs.
  ptx         ///< NVIDIA GPUs only: LLVM in Tessera's code-generation module, and ptxas instead of the driver.
};

}  // namespace tessera
