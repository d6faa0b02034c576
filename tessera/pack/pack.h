// SPDX-License-Identifier: Apache-2.0
// Packs: kernels that are compiled ahead of time for several targets, in one file. A program that uses a pack needs no
// compiler and no kernel cache for the kernels in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/device/device.h"

namespace tessera {

class Kernel;

/// What a pack contains for one target.
struct PackedTarget {
  std::string name;           ///< "cpu:x86-64-v3", "sm_90"
  std::string compiler;       ///< "NVRTC 13.0"
  std::uint64_t kernels = 0;  ///< Number of kernels; variants count separately.
  std::uint64_t bytes = 0;    ///< Size of their code.
};

/// Compiles kernels for each target, and writes them to `file`. No device of the targets has to be in this machine, but
/// their compilers must be installed. Targets are:
///
/// - `cpu:LEVEL`, with a level of x86-64 (x86-64-v3), or aarch64 on such a machine: needs the code-generation module
/// - `sm_90` and other NVIDIA architectures, as machine code: needs NVRTC or ptxas
/// - `compute_80`, as PTX, which the driver compiles for GPUs of this or a later architecture: needs the module
/// - `gfx90a` and other AMD architectures: needs hiprtc
///
/// Tessera chooses kernels by the number of compute units of a device. A device reports the number of the target while
/// it uses a pack, so that it asks for the kernels that are in it. A number after a colon (`cpu:x86-64-v3:16`) replaces
/// the default, which is the number of a common GPU of the architecture, or of this machine's processors.
///
/// Throws DeviceError if a target is unknown or its compiler is not installed, KernelError if a kernel cannot be
/// compiled for a target, and ArgumentError if the file cannot be written.
std::vector<PackedTarget> pack(std::span<const Kernel> kernels, std::span<const std::string> targets,
                               const std::string& file);

/// Calls `work` for each target with a device that simulates the target, and packs the kernels that `work` launches.
/// `work` creates arrays on this device and uses them as usual, from the calling thread. Nothing is computed, and
/// downloads return zeros. Work is as for a GPU without a vendor's library. Throws like `pack`.
std::vector<PackedTarget> pack_launches(std::span<const std::string> targets, const std::string& file,
                                        Callback<void(Device)> work);

/// Makes this process load kernels from a pack, instead of the one in TESSERA_PACK. Call it before the first use of a
/// device. Kernels that are not in the pack are compiled, unless TESSERA_COMPILE is 0; the first one is logged as a
/// warning.
///
/// Throws ArgumentError if the file cannot be read, or if a device that the pack has kernels for is already open.
/// Throws FormatError if the file is not a pack, is damaged, or was made by another version of Tessera.
void use_pack(const std::string& file);

}  // namespace tessera
