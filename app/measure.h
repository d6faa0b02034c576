// SPDX-License-Identifier: Apache-2.0
// A first computation on a device, with its figures: what `tessera doctor` shows to be fast or slow. Rough on purpose
// (a second or two a device); benchmarks/ has the careful ones.
#pragma once

#include <chrono>
#include <string>

#include "tessera/device/device.h"

namespace tessera::app {

struct Figures {
  bool ended = false;             ///< within the time limit; else the device may still be at work
  std::string error;              ///< of the computation that failed
  double compile_seconds = 0;     ///< of the first kernel, from the call to its first result
  double copy_bytes = 0;          ///< a second: read and written by a kernel that copies, both counted
  double fma_operations = 0;      ///< a second: f32 multiplications and additions
  double product_operations = 0;  ///< a second: of a square matrix product in f32
  std::int64_t product_size = 0;
  bool right = false;  ///< every result was checked, and was right
};

/// Runs it in a thread of its own, and gives up waiting at the limit. Does not throw.
Figures measure(Device device, std::chrono::seconds limit);

}  // namespace tessera::app
