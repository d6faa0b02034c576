// SPDX-License-Identifier: Apache-2.0
// What a backend implements to have large products computed by its vendor's library: cuBLASLt, hipBLASLt, rocBLAS,
// CLBlast. Optional, and never linked: a device without one computes with Tessera's own kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/dtype.h"
#include "tessera/device/driver.h"

namespace tessera {

/// A matrix of a product, or a batch of them: row r and column c lie at element r * ld + c, or c * ld + r if
/// transposed, of each; the matrices `batch_stride` elements apart (0: they are all the same one).
struct BlasMatrix {
  DType dtype = DType::f32;
  bool transposed = false;
  std::int64_t ld = 0, batch_stride = 0;
  friend bool operator==(const BlasMatrix&, const BlasMatrix&) = default;
};

/// out (m, n) = a (m, k) times b (k, n), summed in f32; then a bias of the out's dtype is added to each row, and what
/// is negative becomes 0, if asked. `out` is not transposed.
struct BlasProduct {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  BlasMatrix a, b, out;
  bool bias = false;
  bool tf32 = false;  ///< f32 factors may be rounded to 10 bits of fraction
  friend bool operator==(const BlasProduct&, const BlasProduct&) = default;
};

/// Where they are: allocation and byte offset of the first element.
struct BlasOperand {
  const Allocation* allocation = nullptr;
  std::uint64_t offset = 0;
};
struct BlasOperands {
  BlasOperand a, b, out, bias;
  Allocation workspace;  ///< as many bytes as `plan` said
};

/// A vendor's library on one device. One thread at a time calls it.
class DriverBlas {
 public:
  virtual ~DriverBlas() = default;
  virtual const std::string& name() const = 0;  ///< "cublasLt", as the placement log has it
  /// The bytes of device memory that it wants for this; nothing if it does not do such a product. `operands` without
  /// workspace: their alignment counts. KernelError: a call failed that should not.
  virtual std::optional<std::size_t> plan(const BlasProduct& product, const BlasOperands& operands) = 0;
  /// Puts a product that was planned into the queue. KernelError as above; DeviceLost.
  virtual void enqueue(DriverQueue& queue, const BlasProduct& product, const BlasOperands& operands) = 0;
};

}  // namespace tessera
