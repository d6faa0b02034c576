// SPDX-License-Identifier: Apache-2.0
// Products of a matrix with a vector that contains many zeros, for example after a relu. Weights that would be
// multiplied by zero are not read. Internal; used by nn/.
#pragma once

#include "tessera/ops/product.h"

namespace tessera::ops {

/// A weight (outputs, inputs) of f32, reordered for sparse inputs. A block computes one output for each of its sums in
/// registers. For these outputs, the weights of an input are contiguous. Inputs that are added to the same sum are
/// adjacent.
class SparseRowWeight {
 public:
  /// The elements of the weight must be finite, because products with 0 are skipped. Throws ShapeError unless `weight`
  /// is a matrix, DtypeError unless it is f32, and DeviceError unless its device is built-in (`is_built_in`).
  explicit SparseRowWeight(const Array& weight);
  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  Device device() const { return numbers_.device(); }
  std::uint64_t bytes() const;  ///< size on the device, rounded up to whole blocks

 private:
  friend Array sparse_row_product(const Array& x, const SparseRowWeight& weight, const Epilogue& epilogue);
  Array numbers_;  // (blocks, sums, inputs of a sum, outputs of a block)
  std::int64_t outputs_, inputs_;
};

/// Returns the weight times x: (outputs,). x is f32 and has `inputs` elements in any shape. Zeros in x are skipped, but
/// NaN propagates. The epilogue is applied to the result, but must not set a dtype. Throws ShapeError, DtypeError or
/// DeviceError if the operands do not match.
Array sparse_row_product(const Array& x, const SparseRowWeight& weight, const Epilogue& epilogue);

/// True if sparse_row_product on this device adds in the same order as `matmul(x, weight.transpose(), epilogue)` for
/// one row. The results are then bit-identical, except that the sign of a zero may differ if all products underflow.
bool is_sparse_row_bit_exact(Device device, std::int64_t outputs, std::int64_t inputs);

}  // namespace tessera::ops
