// SPDX-License-Identifier: Apache-2.0
// Asks a driver for its devices, so that a vendor's code cannot take the program down: each part of it in a process of
// its own, or from what is remembered of one. Internal to device/.
#pragma once

#include "tessera/device/driver.h"

namespace tessera {

/// The driver's row. Afterwards the driver may load what answered, and nothing that crashed or hung.
BackendReport ask_foreign(Driver& driver);

}  // namespace tessera
