// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/pack_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::backend {

const PackTarget* best_pack_target(Backend backend, const std::function<int(const PackTarget&)>& rank) {
  const KernelPack* const pack = usable_pack();
  if (pack == nullptr) return nullptr;
  const PackTarget* best = nullptr;
  int highest = 0;
  for (const PackTarget& target : pack->targets()) {
    if (target.backend != backend) continue;
    if (const int r = rank(target); r > highest) highest = r, best = &target;
  }
  return best;
}

void use_pack_target(DeviceInfo& info, const PackTarget& target) {
  info.driver_version += ", target " + target.name + " of the pack";
  info.compute_units = target.compute_units;
  // A launch checks the limit of the device, so a kernel that needs more is reported.
  info.can.shared_bytes = std::min(info.can.shared_bytes, target.shared_bytes);
}

std::string other_targets(const std::string& architecture) {
  const KernelPack* const pack = usable_pack();
  if (pack == nullptr) return {};
  return fmt::format("the pack {} has kernels for {}, but this device has {}", pack->file(), pack->target_names(", "),
                     architecture);
}

}  // namespace tessera::backend
