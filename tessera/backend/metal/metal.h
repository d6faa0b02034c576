// SPDX-License-Identifier: Apache-2.0
// The `metal` backend: Apple's GPUs through the Objective-C runtime, without a line of Objective-C. It has run over a
// stand-in for Metal only, never on Apple's: unverified.
#pragma once

#include <memory>

#include "tessera/device/driver.h"

namespace tessera {

/// Does not throw and opens nothing until it is asked for devices. Elsewhere than on Apple's systems its state is
/// `unsupported`, unless TESSERA_METAL_LIBRARY names a file with the entry points of the Objective-C runtime and Metal.
std::unique_ptr<Driver> make_metal_driver();

}  // namespace tessera
