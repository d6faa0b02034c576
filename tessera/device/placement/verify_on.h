// SPDX-License-Identifier: Apache-2.0
// Runs a piece of a program and does each of its kernels again on a second device, with the same inputs, to find the
// kernel that computes differently. Slow: all memory that a kernel sees is copied for each launch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/device/device.h"

namespace tessera {

/// All launches of the kernels of one name from one device.
struct VerifiedKernel {
  std::string kernel;          ///< The kernel's name.
  Device device;               ///< where the program ran it
  std::uint64_t launches = 0;  ///< The number of launches.
  std::uint64_t elements = 0;  ///< that were compared: of every buffer it may write
  std::uint64_t wrong = 0;     ///< that differ by more than the tolerance
  /// Elements of 4-byte integers that differ, but no more than rounding explains where the words hold packed numbers:
  /// as floats by the tolerance, or by 1 in a byte. Not counted as wrong.
  std::uint64_t rounded = 0;
  double worst = 0;         ///< of floats: largest difference over the largest magnitude in the buffer
  std::string first_wrong;  ///< "y[17] is 3.5, on interp:0 4.25 (launch 3)"
};

/// The result of verify_on.
struct VerifyReport {
  Device reference;                     ///< The device that ran each kernel again.
  double tolerance = 0;                 ///< The relative difference that was allowed.
  std::vector<VerifiedKernel> kernels;  ///< the worst first
  bool agrees() const;                  ///< True if all kernels agree within the tolerance.
};
std::string to_string(const VerifyReport& report);  ///< a table for people

/// Runs `program`, and each kernel that this thread launches meanwhile also on `reference`. An element of f16, bf16,
/// f32 or f64 is wrong if it differs by more than `tolerance` times the largest magnitude in its buffer, or only one of
/// the two is NaN; an integer or bool if it differs at all (but see `rounded`). Kernels already on `reference` are not
/// run again. DeviceError if `reference` does not exist; what `program` throws passes through.
VerifyReport verify_on(Device reference, const std::function<void()>& program, double tolerance = 1e-4);

}  // namespace tessera
