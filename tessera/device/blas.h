// SPDX-License-Identifier: Apache-2.0
// Interface to a vendor's matrix library (cuBLASLt, hipBLASLt, rocBLAS, CLBlast) for large products. Optional and
// loaded at run time, never linked: a device without one uses Tessera's own kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/dtype.h"
#include "tessera/device/driver.h"

namespace tessera {

/// Layout of a matrix, or of a batch of matrices that start `batch_stride` elements apart (0: all are the same matrix).
/// Element (r, c) is at r * ld + c, or at c * ld + r if transposed.
struct BlasMatrix {
  DType dtype = DType::f32;
  bool transposed = false;
  std::int64_t ld = 0, batch_stride = 0;
  friend bool operator==(const BlasMatrix&, const BlasMatrix&) = default;
};

/// out (m, n) = a (m, k) @ b (k, n), accumulated in f32. Then, if requested, a bias of out's dtype is added to each row
/// and negative results become 0. `out` is never transposed.
struct BlasProduct {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  BlasMatrix a, b, out;
  bool bias = false;
  bool tf32 = false;  ///< f32 factors may be rounded to 10 bits of fraction
  friend bool operator==(const BlasProduct&, const BlasProduct&) = default;
};

/// Location of an operand's first element: allocation and byte offset.
struct BlasOperand {
  const Allocation* allocation = nullptr;
  std::uint64_t offset = 0;
};
struct BlasOperands {
  BlasOperand a, b, out, bias;
  Allocation workspace;  ///< of the size that `plan` returned
};

/// A vendor's library on one device. Calls must be serialised by the caller.
class DriverBlas {
 public:
  virtual ~DriverBlas() = default;
  virtual const std::string& name() const = 0;  ///< as in the placement log: "cublasLt"
  /// Returns the workspace size in bytes, or nothing if the library does not support this product. `operands` have no
  /// workspace yet; their alignment matters. Throws KernelError if a library call fails unexpectedly.
  virtual std::optional<std::size_t> plan(const BlasProduct& product, const BlasOperands& operands) = 0;
  /// Enqueues a planned product. Throws KernelError as above, or DeviceLost.
  virtual void enqueue(DriverQueue& queue, const BlasProduct& product, const BlasOperands& operands) = 0;
};

}  // namespace tessera
