// SPDX-License-Identifier: Apache-2.0
// Runs each kernel of a program again on a second device with the same inputs, to find kernels whose results differ.
// Slow: all memory passed to a kernel is copied for each launch.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/device/device.h"

namespace tessera {

/// Results for all launches of one kernel on one device.
struct VerifiedKernel {
  std::string kernel;          ///< The kernel's name.
  Device device;               ///< The device on which the program ran it.
  std::uint64_t launches = 0;  ///< Number of launches.
  std::uint64_t elements = 0;  ///< Number of compared elements, from all buffers that it may write.
  std::uint64_t wrong = 0;     ///< Number of elements that differ by more than the tolerance.
  /// Number of differing 4-byte integers that may be packed numbers differing by rounding: equal within the tolerance
  /// as floats, or within 1 in each byte. Not counted as wrong.
  std::uint64_t rounded = 0;
  double worst = 0;         ///< Floats: largest difference relative to the largest magnitude in the buffer.
  std::string first_wrong;  ///< The first wrong element: "y[17] is 3.5, on interp:0 4.25 (launch 3)".
};

/// The result of verify_on.
struct VerifyReport {
  Device reference;                     ///< The device that ran each kernel again.
  double tolerance = 0;                 ///< The allowed relative difference.
  std::vector<VerifiedKernel> kernels;  ///< Kernels, worst first.
  bool agrees() const;                  ///< True if all kernels agree within the tolerance.
};
std::string to_string(const VerifyReport& report);  ///< Formats the report as a table.

/// Runs `program`, and runs each kernel that this thread launches again on `reference`. An f16, bf16, f32 or f64
/// element is wrong if it differs by more than `tolerance` times the largest magnitude in its buffer, or if only one of
/// the two is NaN; an integer or bool if it differs at all (but see `rounded`). Kernels already on `reference` are not
/// repeated.
/// Throws DeviceError if `reference` does not exist. Exceptions of `program` propagate.
VerifyReport verify_on(Device reference, const Callback<void()>& program, double tolerance = 1e-4);

}  // namespace tessera
