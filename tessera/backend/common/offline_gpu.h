// SPDX-License-Identifier: Apache-2.0
// What the backends' GPUs that are not in this machine have in common.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/device/offline_target.h"
#include "tessera/emit/dialect.h"

namespace tessera::backend {

class OfflineGpu : public OfflineTarget {
 public:
  const DeviceInfo& info() const override { return info_; }
  const GpuModel& model() const override { return model_; }
  Grid grid(const CompileRequest& request, const std::array<std::uint64_t, 3>& shape) override;

 protected:
  /// Sets the properties in info_ that do not depend on the vendor, or that follow from model_ and dialect_.
  void set_info(Backend backend, std::string_view vendor, std::uint32_t memory_gib);

  emit::Dialect dialect_;
  DeviceInfo info_;
  GpuModel model_;
};

/// Returns the element of `known` whose architecture() is `wanted`. Throws DeviceError if there is none.
template <class Known>
const auto& find_architecture(const Known& known, const std::string& wanted, std::string_view vendor) {
  std::string list;
  for (const auto& a : known) {
    if (a.architecture() == wanted) return a;
    list += (list.empty() ? "" : ", ") + a.architecture();
  }
  fail<DeviceError>({.operation = "compile for " + wanted,
                     .wrong = "the architecture is not known",
                     .remedy = "Known architectures of " + std::string(vendor) + ": " + list});
}

}  // namespace tessera::backend
