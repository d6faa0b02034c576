// SPDX-License-Identifier: Apache-2.0
// Asks a driver for its devices, so that a vendor's code cannot take the program down: each part of it in a process of
// its own, or from what is remembered of one. Internal to device/.
#pragma once

#include <vector>

#include "tessera/device/discovery/trials.h"

namespace tessera {

/// A driver's row; and for each device where it comes from, if that was found out in a probe and each device is to be
/// tried in one before it is opened.
struct ProbedBackend {
  BackendReport report;
  std::vector<Origin> origins;
};
/// Afterwards the driver may load what answered, and nothing that crashed or hung.
ProbedBackend probe_driver(Driver& driver);

}  // namespace tessera
