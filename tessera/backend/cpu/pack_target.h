// SPDX-License-Identifier: Apache-2.0
// Targets of packs (device/launch/kernel_pack.h) for processors: levels of x86-64, and aarch64.
#pragma once

#include <memory>
#include <string>

#include "tessera/backend/common/codegen.h"
#include "tessera/device/launch/kernel_pack.h"

namespace tessera::cpu {

/// A target of the pack in use for this processor.
struct CpuPackTarget {
  const PackTarget* target = nullptr;
  std::string level;  ///< "x86-64-v3"
  TargetTraits traits;
};

/// Returns the best target of the pack in use that this processor supports; `target` is null if there is none. If
/// `asked` is not "native", only targets of this level are considered.
CpuPackTarget choose_pack_target(const std::string& asked);

/// Returns the properties of the cpu device if kernels are compiled for these traits; null: they are interpreted.
DeviceInfo describe_cpu(const TargetTraits* traits);

/// Returns null if `target` does not begin with "cpu:". Otherwise see make_pack_compiler.
std::unique_ptr<PackCompiler> pack_compiler(const std::string& target);

}  // namespace tessera::cpu
