// SPDX-License-Identifier: Apache-2.0
// Lists a driver's devices without letting a vendor's code crash the program. Each part of the driver is probed in a
// helper process unless there is a cached result. Internal to device/.
#pragma once

#include <vector>

#include "tessera/device/discovery/trials.h"
#include "tessera/device/driver.h"

namespace tessera {

/// A driver's report. If a helper process listed the devices, `origins` has an entry for each device, which must be
/// tried in a helper process before it is opened. Otherwise `origins` is empty.
struct ProbedBackend {
  BackendReport report;
  std::vector<Origin> origins;
};
/// Probes the driver and disables the parts that crashed or hung.
ProbedBackend probe_driver(Driver& driver);

}  // namespace tessera
