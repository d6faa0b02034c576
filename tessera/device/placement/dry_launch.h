// SPDX-License-Identifier: Apache-2.0
// The kernel launches of a dry run. Internal.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/device/launch/variant.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/ir/fwd.h"

namespace tessera {

struct DryLaunch {
  std::shared_ptr<const ir::Function> function;
  Variant variant;
  std::array<std::uint64_t, 3> shape{};  ///< threads of a map kernel, blocks of a block kernel
  std::vector<std::uint64_t> values;     ///< per parameter: the number of elements of a buffer, or the bits of a scalar
};

/// Returns the launches since the start of the dry run, if it was constructed with a DeviceInfo.
const std::vector<DryLaunch>& launches_of(const DryRun& run);

}  // namespace tessera
