// SPDX-License-Identifier: Apache-2.0
// Chooses the target of the pack in use for a GPU. Used only in tessera/backend.
#pragma once

#include <functional>
#include <string>

#include "tessera/device/launch/kernel_pack.h"

namespace tessera::backend {

/// Returns the target for a device of the backend with the highest rank, and of these the one whose number of compute
/// units is nearest. Returns null if all ranks are 0 or there is no pack.
const PackTarget* best_pack_target(Backend backend, const DeviceInfo& info,
                                   const std::function<int(const PackTarget&)>& rank);

/// Sets the properties by which kernels are chosen to those that the target's kernels were traced for, and adds the
/// target to the driver's version.
void use_pack_target(DeviceInfo& info, const PackTarget& target);

/// Returns "the pack gpu.pack has kernels for sm_80, sm_90, but this device has gfx90a" if a pack is in use, or an
/// empty string.
std::string other_targets(const std::string& architecture);

}  // namespace tessera::backend
