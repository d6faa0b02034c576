// SPDX-License-Identifier: Apache-2.0
// Internal; used by nn/. Products of a matrix with a vector that has many zeros, as after a relu: weights that would be
// multiplied by zero are not read.
#pragma once

#include "tessera/ops/product.h"

namespace tessera::ops {

/// A weight (outputs, inputs) of f32, reordered for sparse inputs: for as many outputs as a block has sums in
/// registers, the weights of one input are contiguous, and the inputs of a sum follow each other.
class SparseRowWeight {
 public:
  /// The device must be a built-in one (`is_built_in`), and the weight's elements finite, because products with 0 are
  /// skipped. Throws ShapeError unless `weight` is a matrix, DtypeError unless it is f32, DeviceError on other devices.
  explicit SparseRowWeight(const Array& weight);
  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  Device device() const { return numbers_.device(); }
  std::uint64_t bytes() const;  ///< size in memory, rounded up to whole blocks

 private:
  friend Array sparse_row_product(const Array& x, const SparseRowWeight& weight, const Epilogue& epilogue);
  Array numbers_;  // (blocks, sums, inputs of a sum, outputs of a block)
  std::int64_t outputs_, inputs_;
};

/// Returns the weight times x, (outputs,), with the epilogue applied; its dtype must be empty. x is f32, (inputs,) or
/// any shape with that many elements. Zeros in x are skipped; NaN is not. Throws ShapeError, DtypeError or DeviceError
/// if the operands do not match.
Array sparse_row_product(const Array& x, const SparseRowWeight& weight, const Epilogue& epilogue);

/// Whether sparse_row_product is bitwise equal to `matmul(x, weight.transpose(), epilogue)` for one row on this device,
/// because both sum in the same order. Only the sign of a zero may differ, if all products underflow.
bool is_sparse_row_bit_exact(Device device, std::int64_t outputs, std::int64_t inputs);

}  // namespace tessera::ops
