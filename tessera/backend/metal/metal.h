// SPDX-License-Identifier: Apache-2.0
// The `metal` backend: Apple GPUs, called through the Objective-C runtime without any Objective-C code. This backend is
// unverified: it was tested with a fake Metal library, but never on Apple hardware.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Returns the backend. Does not throw, and opens no library before devices are requested. On systems other than
/// Apple's, the state of the backend is `unsupported`, unless TESSERA_METAL_LIBRARY is set to a library that implements
/// the entry points of the Objective-C runtime and Metal.
std::unique_ptr<Driver> make_metal_driver();

}  // namespace tessera
