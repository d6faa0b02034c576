// SPDX-License-Identifier: Apache-2.0
// Matrices as the kernels of linear algebra take them: parts of memory that a launch is given whole, so that it may
// read some of a matrix and write other parts of it. Inside ops/ only.
#pragma once

#include "tessera/array/array.h"

namespace tessera::ops {

/// A matrix in memory. Strides may be negative.
struct MatrixBlock {
  const BufferView* memory = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t first = 0;  ///< elements from where `memory` begins to the matrix's first
  std::int64_t row_stride = 0, column_stride = 0;

  MatrixBlock part(std::int64_t row, std::int64_t column, std::int64_t row_count, std::int64_t column_count) const {
    return {memory,     row_count,    column_count, first + row * row_stride + column * column_stride,
            row_stride, column_stride};
  }
  MatrixBlock transposed() const { return {memory, columns, rows, first, column_stride, row_stride}; }
  /// With the order of its rows reversed.
  MatrixBlock rows_reversed() const {
    return {memory, rows, columns, first + (rows - 1) * row_stride, -row_stride, column_stride};
  }
  MatrixBlock columns_reversed() const { return transposed().rows_reversed().transposed(); }
};

/// The array's (rows, columns) in `memory`, its view.
MatrixBlock matrix_block_of(const Array& a, const BufferView& memory);
/// For operands of one launch that writes the first: views of one storage become one view of all of them. ArgumentError
/// if an element that is written may be another operand's.
void join_views(const char* operation, std::span<BufferView> views, std::span<MatrixBlock> blocks);

/// c = alpha a b + beta c, none of them empty. With `lower` only of and below c's diagonal. `b_packed`: b's memory
/// is what pack_rhs made of it.
void update(const MatrixBlock& c, const MatrixBlock& a, const MatrixBlock& b, double alpha, double beta, bool lower,
            bool b_packed = false);
/// x of t x = b in b's place, none of them empty: the lower triangle of t, which may be in the memory of b.
void solve_lower(const MatrixBlock& t, const MatrixBlock& b, bool unit_diagonal);
/// Cholesky's factorisation of a in its lower triangle; `failure` and `order` as cholesky_into has them.
void factorise(const MatrixBlock& a, const BufferView& failure, std::int64_t order);

}  // namespace tessera::ops
