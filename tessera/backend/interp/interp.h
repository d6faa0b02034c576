// SPDX-License-Identifier: Apache-2.0
// The reference interpreter as a device: `interp`, used only when named. It runs each launch to its end on the calling
// thread, in the host's memory, and finds kernels' mistakes when asked to.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Environment, read when the device is listed or opened:
///   TESSERA_CHECK=1     bounds, races, reads of uninitialised memory, divergent control and index overflow of every
///                       kernel are checked; the first finding is thrown as a KernelError by the launch. Downloads of
///                       memory that nothing has written throw ArgumentError. Copies from
///                       other devices, and host_access, count as writes
///   TESSERA_SUBGROUP=n  threads in a subgroup, 1 to 128 (32). Several, as in 32,1,8,64: as many devices, interp:0 the
///   first
/// Opening throws ArgumentError if a variable cannot be read, and the enumeration has that as the reason.
std::unique_ptr<Driver> make_interp_driver();

}  // namespace tessera
