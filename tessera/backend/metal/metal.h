// SPDX-License-Identifier: Apache-2.0
// The `metal` backend: Apple GPUs, called through the Objective-C runtime without any Objective-C code. Tested only
// with a fake Metal library, never on Apple hardware: unverified.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. Does not throw, and opens nothing until devices are requested. On systems other than Apple's
/// its state is `unsupported`, unless TESSERA_METAL_LIBRARY names a file with the entry points of the Objective-C
/// runtime and Metal.
std::unique_ptr<Driver> make_metal_driver();

}  // namespace tessera
