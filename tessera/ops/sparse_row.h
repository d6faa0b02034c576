// SPDX-License-Identifier: Apache-2.0
// Products of a matrix with one vector of which many elements are 0, as a relu leaves them: what would be multiplied by
// those is not read. Internal, for layers above.
#pragma once

#include "tessera/ops/product.h"

namespace tessera::ops {

/// A weight (outputs, inputs) of f32, laid out again: for as many outputs at a time as a block of threads has sums in
/// registers, what multiplies one input lies together, and inputs of the same sum lie one behind the other.
class SparseRowWeight {
 public:
  /// Of a device of ours (`is_built_in`); its elements are finite, since 0 times what is not finite is left out.
  /// ShapeError unless `weight` is a matrix, DtypeError unless of f32, DeviceError on another device.
  explicit SparseRowWeight(const Array& weight);
  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  Device device() const { return numbers_.device(); }
  std::uint64_t bytes() const;  ///< of memory, which is rounded up to whole blocks

 private:
  friend Array sparse_row_product(const Array& x, const SparseRowWeight& weight, const Epilogue& epilogue);
  Array numbers_;  // (blocks, sums, inputs of a sum, outputs of a block)
  std::int64_t outputs_, inputs_;
};

/// x (inputs,), or of any shape with as many elements, of f32, gives (outputs,): the weight times x, then the epilogue,
/// of which no dtype is taken. What is 0 (NaN is not) is left out. ShapeError, DtypeError, DeviceError.
Array sparse_row_product(const Array& x, const SparseRowWeight& weight, const Epilogue& epilogue);

/// Whether that gives what `matmul(x, weight.transpose(), epilogue)` gives there for one row, bit for bit: it adds in
/// the same order. Only the sign of a 0 may differ, where all products are too small for f32.
bool is_sparse_row_bit_exact(Device device, std::int64_t outputs, std::int64_t inputs);

}  // namespace tessera::ops
