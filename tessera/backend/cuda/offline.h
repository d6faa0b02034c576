// SPDX-License-Identifier: Apache-2.0
// Compiles for NVIDIA GPUs that are not in this machine.
#pragma once

#include <memory>
#include <string>

#include "tessera/device/launch/kernel_pack.h"
#include "tessera/device/offline_target.h"

namespace tessera::cuda {

/// Returns null if `architecture` is not of the form "sm_90". Otherwise see make_offline_target.
std::unique_ptr<OfflineTarget> offline_target(const std::string& architecture, TargetCompiler compiler);

/// Returns null if `target` is not of the form "sm_90" or "compute_80". Otherwise see make_pack_compiler. The image of
/// a target "sm_90" is machine code; that of "compute_80" is PTX, which the driver compiles for later GPUs, too.
std::unique_ptr<PackCompiler> pack_compiler(const std::string& target);

}  // namespace tessera::cuda
