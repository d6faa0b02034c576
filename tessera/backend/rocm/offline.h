// SPDX-License-Identifier: Apache-2.0
// Compiles for AMD GPUs that are not in this machine.
#pragma once

#include <memory>
#include <string>

#include "tessera/device/launch/kernel_pack.h"
#include "tessera/device/offline_target.h"

namespace tessera::rocm {

/// Returns null if `architecture` is not of the form "gfx90a". Otherwise see make_offline_target.
std::unique_ptr<OfflineTarget> offline_target(const std::string& architecture, TargetCompiler compiler);

/// Returns null if `target` does not begin with "gfx". Otherwise see make_pack_compiler. Compiles with hiprtc.
std::unique_ptr<PackCompiler> pack_compiler(const std::string& target);

}  // namespace tessera::rocm
