// SPDX-License-Identifier: Apache-2.0
// Interface to a vendor's matrix library (cuBLASLt, hipBLASLt, rocBLAS, CLBlast) for large products. The library is
// optional and loaded at run time. Devices without such a library use Tessera's kernels.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/dtype.h"
#include "tessera/device/driver.h"

namespace tessera {

/// Layout of a matrix or of a batch of matrices. Element (r, c) is at r * ld + c, or at c * ld + r if transposed. The
/// matrices of a batch start `batch_stride` elements apart; with a stride of 0, all of them are the same matrix.
struct BlasMatrix {
  DType dtype = DType::f32;
  bool transposed = false;
  std::int64_t ld = 0, batch_stride = 0;
  friend bool operator==(const BlasMatrix&, const BlasMatrix&) = default;
};

/// out (m, n) = a (m, k) @ b (k, n), accumulated in f32. If requested, a bias with the dtype of `out` is then added to
/// each row, and negative results are set to 0. `out` is never transposed.
struct BlasProduct {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  BlasMatrix a, b, out;
  bool bias = false;
  bool tf32 = false;  ///< f32 operands may be rounded to 10 mantissa bits
  friend bool operator==(const BlasProduct&, const BlasProduct&) = default;
};

/// Location of an operand's first element.
struct BlasOperand {
  const Allocation* allocation = nullptr;
  std::uint64_t offset = 0;
};
struct BlasOperands {
  BlasOperand a, b, out, bias;
  Allocation workspace;  ///< has the size that `plan` returned
};

/// A vendor's library on one device. Calls must be serialised by the caller.
class DriverBlas {
 public:
  virtual ~DriverBlas() = default;
  virtual const std::string& name() const = 0;  ///< name in the placement log: "cublasLt"
  /// Returns the workspace size in bytes, or std::nullopt if the library does not support this product. `operands` have
  /// no workspace yet, but their alignment must be final. Throws KernelError if a library call fails unexpectedly.
  virtual std::optional<std::size_t> plan(const BlasProduct& product, const BlasOperands& operands) = 0;
  /// Enqueues a product for which `plan` returned a size. Throws KernelError if a library call fails, and DeviceLost if
  /// the device is lost.
  virtual void enqueue(DriverQueue& queue, const BlasProduct& product, const BlasOperands& operands) = 0;
};

/// A product in recorded work.
struct RecordedProduct {
  DriverBlas& blas;
  std::mutex& lock;  ///< serialises calls of `blas`
  BlasProduct product;
  /// Enqueues the product. `operands` are those of RecordedWork::vendor_product. Throws like DriverBlas::enqueue.
  void enqueue(DriverQueue& queue, std::span<const Argument> operands) const {
    const auto operand = [&](std::size_t i) { return BlasOperand{operands[i].allocation, operands[i].byte_offset}; };
    BlasOperands all{operand(0), operand(1), operand(2), operand(3), {}};
    if (operands[4].allocation != nullptr) all.workspace = *operands[4].allocation;
    const std::lock_guard<std::mutex> hold(lock);
    blas.enqueue(queue, product, all);
  }
};

}  // namespace tessera
