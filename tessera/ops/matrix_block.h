// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Matrices as arguments of linear algebra kernels: a launch gets whole memory ranges, so it can read
// some parts of a matrix and write others.
#pragma once

#include "tessera/array/array.h"

namespace tessera::ops {

/// A matrix in memory. Strides may be negative.
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

/// The matrix (rows, columns) of the array; `memory` must be its view.
MatrixBlock matrix_block_of(const Array& a, const BufferView& memory);
/// Joins views of the same storage into one view each, for a launch that writes the first operand. Throws ArgumentError
/// if the first operand overlaps another.
void join_views(const char* operation, std::span<BufferView> views, std::span<MatrixBlock> blocks);

/// Computes c = alpha a b + beta c; no operand may be empty. `lower`: only elements on and below c's diagonal.
/// `b_packed`: b's memory was made by pack_rhs.
void update(const MatrixBlock& c, const MatrixBlock& a, const MatrixBlock& b, double alpha, double beta, bool lower,
            bool b_packed = false);
/// Solves t x = b, overwriting b; no operand may be empty. Reads the lower triangle of t, which may be in the same
/// memory as b.
void solve_lower(const MatrixBlock& t, const MatrixBlock& b, bool unit_diagonal);
/// Cholesky factorisation of a in its lower triangle; `failure` and `order` as in cholesky_into.
void factorise(const MatrixBlock& a, const BufferView& failure, std::int64_t order);

}  // namespace tessera::ops
