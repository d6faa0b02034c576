// SPDX-License-Identifier: Apache-2.0
// The backend that determines which kernels a device runs.
#pragma once

#include "tessera/device/device.h"

namespace tessera {

namespace detail {
Backend simulated_backend(Device device);  ///< in dry_run.cpp
}  // namespace detail

/// The backend whose kernels a device runs: its own, or in a DryRun that of the simulated device.
inline Backend kernel_backend(Device device) {
  return device.backend == Backend::dry_run ? detail::simulated_backend(device) : device.backend;
}

}  // namespace tessera
