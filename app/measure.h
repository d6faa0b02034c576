// SPDX-License-Identifier: Apache-2.0
// A first computation on a device, with measurements for `tessera doctor`. Approximate on purpose (a second or two per
// device); benchmarks/ measures carefully.
#pragma once

#include <chrono>
#include <string>

#include "tessera/device/device.h"

namespace tessera::app {

struct Figures {
  bool ended = false;             ///< within the time limit; otherwise the device may still be running
  std::string error;              ///< of the failed computation
  double compile_seconds = 0;     ///< of the first kernel, from the call to its result
  double copy_bytes = 0;          ///< per second: bytes read and written by a copy kernel
  double fma_operations = 0;      ///< per second: f32 multiplications and additions
  double product_operations = 0;  ///< per second: of a square f32 matrix product
  std::int64_t product_size = 0;
  bool right = false;  ///< every result was checked and correct
};

/// Measures in a thread, and stops waiting at the limit. Does not throw.
Figures measure(Device device, std::chrono::seconds limit);

}  // namespace tessera::app
