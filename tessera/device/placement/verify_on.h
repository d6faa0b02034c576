// SPDX-License-Identifier: Apache-2.0
// Reruns each kernel of a program on a second device with the same inputs, to find kernels whose results differ. Slow,
// because each launch copies all memory that is passed to the kernel.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/device/device.h"

namespace tessera {

/// Results of all launches of one kernel on one device.
struct VerifiedKernel {
  std::string kernel;          ///< The kernel's name.
  Device device;               ///< Device on which the program ran the kernel.
  std::uint64_t launches = 0;  ///< Number of launches.
  std::uint64_t elements = 0;  ///< Number of compared elements in all buffers that the kernel may write.
  std::uint64_t wrong = 0;     ///< Number of elements that differ by more than the tolerance.
  /// Number of different 4-byte integers that may be packed numbers with rounding differences: they are equal within
  /// the tolerance as floats, or differ by at most 1 in each byte. Not counted as wrong.
  std::uint64_t rounded = 0;
  double worst = 0;         ///< For floats: largest difference, relative to the largest magnitude in the buffer.
  std::string first_wrong;  ///< The first wrong element: "y[17] is 3.5, on interp:0 4.25 (launch 3)".
};

/// Result of verify_on.
struct VerifyReport {
  Device reference;                     ///< The device that reran each kernel.
  double tolerance = 0;                 ///< The allowed relative difference.
  std::vector<VerifiedKernel> kernels;  ///< Results of the kernels, largest difference first.
  bool agrees() const;                  ///< True if all kernels agree within the tolerance.
};
std::string to_string(const VerifyReport& report);  ///< Formats the report as a table.

/// Runs `program`, and reruns on `reference` each kernel that this thread launches. A float element (f16, bf16, f32,
/// f64) is wrong if it differs by more than `tolerance` times the largest magnitude in its buffer, or if only one of
/// the two results is NaN. An integer or bool is wrong if it differs at all (but see `rounded`). Kernels that run on
/// `reference` are not repeated.
/// Throws DeviceError if `reference` does not exist. Exceptions of `program` propagate.
VerifyReport verify_on(Device reference, const Callback<void()>& program, double tolerance = 1e-4);

}  // namespace tessera
