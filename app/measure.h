// SPDX-License-Identifier: Apache-2.0
// Runs a first computation on a device and measures its speed, for `tessera doctor`. It takes only a second or two per
// device, so the results are approximate; the programs in benchmarks/ are more accurate.
#pragma once

#include <chrono>
#include <string>

#include "tessera/device/device.h"

namespace tessera::app {

struct Figures {
  bool ended = false;          ///< true if the measurement ended within the time limit; if not, it may still be running
  std::string error;           ///< the error if the computation failed
  double compile_seconds = 0;  ///< time from the first kernel's launch to its result, including compilation
  double copy_bytes = 0;       ///< bytes per second that a copy kernel reads and writes
  double fma_operations = 0;   ///< f32 multiplications and additions per second
  double product_operations = 0;  ///< operations per second of a square f32 matrix product
  std::int64_t product_size = 0;
  bool right = false;  ///< true if all results are correct
};

/// Measures a device in a separate thread. Returns after `limit` even if the thread has not finished. Does not throw.
Figures measure(Device device, std::chrono::seconds limit);

}  // namespace tessera::app
