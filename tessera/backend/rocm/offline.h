// SPDX-License-Identifier: Apache-2.0
// Compiles for AMD GPUs that are not in this machine.
#pragma once

#include "tessera/device/offline_target.h"

namespace tessera::rocm {

/// Returns null if `architecture` is not of the form "gfx90a". Otherwise see make_offline_target.
std::unique_ptr<OfflineTarget> offline_target(const std::string& architecture, TargetCompiler compiler);

}  // namespace tessera::rocm
