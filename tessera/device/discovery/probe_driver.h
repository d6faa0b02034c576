// SPDX-License-Identifier: Apache-2.0
// Lists a driver's devices without letting a vendor's code crash the program: each part is probed in a helper process,
// or its cached result is used. Internal to device/.
#pragma once

#include <vector>

#include "tessera/device/discovery/trials.h"
#include "tessera/device/driver.h"

namespace tessera {

/// A driver's report. `origins` has an entry per device if they were listed by a helper process and must be tried there
/// before they are opened; else it is empty.
struct ProbedBackend {
  BackendReport report;
  std::vector<Origin> origins;
};
/// Probes the driver and restricts it to parts that neither crashed nor hung.
ProbedBackend probe_driver(Driver& driver);

}  // namespace tessera
