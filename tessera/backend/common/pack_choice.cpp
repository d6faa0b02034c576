// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/pack_choice.h"

#include <fmt/format.h>

#include <cstdlib>

namespace tessera::backend {

const PackTarget* best_pack_target(Backend backend, const DeviceInfo& info,
                                   const std::function<int(const PackTarget&)>& rank) {
  const KernelPack* const pack = usable_pack();
  if (pack == nullptr) return nullptr;
  const PackTarget* best = nullptr;
  int highest = 0;
  const auto distance = [&](const PackTarget& t) {
    return std::abs(static_cast<long>(t.compute_units) - static_cast<long>(info.compute_units));
  };
  for (const PackTarget& target : pack->targets()) {
    if (target.backend != backend) continue;
    // Kernels are chosen by this size, so a device with less would ask for kernels that are not in the pack.
    if (target.shared_bytes > info.can.shared_bytes) continue;
    const int r = rank(target);
    if (r > highest || (r > 0 && r == highest && distance(target) < distance(*best))) highest = r, best = &target;
  }
  return best;
}

void use_pack_target(DeviceInfo& info, const PackTarget& target) {
  info.driver_version += ", target " + target.name + " of the pack";
  info.compute_units = target.compute_units;
  info.can.shared_bytes = target.shared_bytes;
}

std::string other_targets(const std::string& architecture) {
  const KernelPack* const pack = usable_pack();
  if (pack == nullptr) return {};
  return fmt::format("the pack {} has kernels for {}, but this device has {}", pack->file(), pack->target_names(", "),
                     architecture);
}

}  // namespace tessera::backend
