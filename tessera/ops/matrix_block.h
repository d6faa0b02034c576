// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Describes matrices for the kernels of linear algebra. A launch receives whole memory ranges, so
// that it can read one part of a matrix and write another.
#pragma once

#include "tessera/array/array.h"

namespace tessera::ops {

/// A strided matrix in memory. Strides may be negative.
struct MatrixBlock {
  const BufferView* memory = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t first = 0;  ///< offset of the matrix's first element in `memory`, in elements
  std::int64_t row_stride = 0, column_stride = 0;

  MatrixBlock part(std::int64_t row, std::int64_t column, std::int64_t row_count, std::int64_t column_count) const {
    return {memory,     row_count,    column_count, first + row * row_stride + column * column_stride,
            row_stride, column_stride};
  }
  MatrixBlock transposed() const { return {memory, columns, rows, first, column_stride, row_stride}; }
  /// The same matrix with its rows in reverse order.
  MatrixBlock rows_reversed() const {
    return {memory, rows, columns, first + (rows - 1) * row_stride, -row_stride, column_stride};
  }
  MatrixBlock columns_reversed() const { return transposed().rows_reversed().transposed(); }
};

/// Returns the array as a matrix (rows, columns). `memory` must be the array's view.
MatrixBlock matrix_block_of(const Array& a, const BufferView& memory);
/// Replaces views of the same storage by one view that covers them all, for a launch that writes the first operand.
/// Throws ArgumentError if the first operand overlaps another.
void join_views(const char* operation, std::span<BufferView> views, std::span<MatrixBlock> blocks);

/// Computes c = alpha a b + beta c. No operand may be empty. If `lower` is true, only elements on and below the
/// diagonal of c are computed. If `b_packed` is true, the memory of b was packed by pack_rhs.
void update(const MatrixBlock& c, const MatrixBlock& a, const MatrixBlock& b, double alpha, double beta, bool lower,
            bool b_packed = false);
/// Solves t x = b and overwrites b with x. No operand may be empty. Only the lower triangle of t is read. t and b may
/// be in the same memory.
void solve_lower(const MatrixBlock& t, const MatrixBlock& b, bool unit_diagonal);
/// Computes the Cholesky factorisation of a in place, in its lower triangle. `failure` and `order` have the same
/// meaning as in cholesky_into.
void factorise(const MatrixBlock& a, const BufferView& failure, std::int64_t order);

}  // namespace tessera::ops
