// SPDX-License-Identifier: Apache-2.0
// Sparse matrices in the formats CSR and COO. They consist of the same three arrays as those of scipy.sparse
// (docs/arrays.md has a table of names), so that functions of structures of arrays, such as `to`, `map_arrays`,
// `save_arrays` and `grad`, visit the arrays, and every device works on them.
//
// Values are f16, bf16, f32 or f64; sums of 16-bit floats are computed in f32. Indices are i32 or i64. Results are the
// same in every run on a device. Functions are differentiable with respect to values and dense operands. They throw
// ShapeError, DtypeError or DeviceError if the parts of a matrix do not match each other or the operands do not match.
//
// Indices are not read when a matrix is constructed: check_indices() does that. Without it, entries outside the matrix
// are multiplied by zero or ignored, and no memory outside the arrays is read. If offsets do not ascend, the rows to
// which entries belong are unspecified.
#pragma once

#include <tuple>

#include "tessera/array/array.h"
#include "tessera/array/parts.h"

namespace tessera::sparse {

/// A matrix in coordinate format. Entry e has the value values[e] in row rows[e] and column columns[e]. Entries can
/// have any order; those at the same place are added.
struct Coo {
  Array values;   ///< The values of the entries (n,).
  Array rows;     ///< The row of each entry (n,).
  Array columns;  ///< The column of each entry (n,), with the dtype of `rows`.
  Shape shape;    ///< The numbers of rows and columns.

  Coo() = default;  ///< Not a matrix: functions throw ShapeError.
  /// Throws ShapeError, DtypeError or DeviceError if the parts do not match. Does not read the indices.
  Coo(Array values, Array rows, Array columns, Shape shape);

  std::int64_t entries() const { return values.size(); }  ///< The number of entries, including zeros.
  DType dtype() const { return values.dtype(); }          ///< The dtype of the values.
  Device device() const { return values.device(); }       ///< The device that owns the memory.
  /// The arrays, for functions of structures of arrays.
  auto fields() { return std::tuple(field("values", values), field("rows", rows), field("columns", columns)); }
};

/// A matrix in compressed sparse row format. The entries of row i are those from offsets[i] to offsets[i + 1] - 1.
/// Entry e has the value values[e] in column columns[e]. Entries of a row can have any order; those in the same column
/// are added.
struct Csr {
  Array values;   ///< The values of the entries (n,).
  Array columns;  ///< The column of each entry (n,).
  Array offsets;  ///< Where each row begins, followed by n: (rows + 1,), with the dtype of `columns`.
  Shape shape;    ///< The numbers of rows and columns.

  Csr() = default;  ///< Not a matrix: functions throw ShapeError.
  /// Throws ShapeError, DtypeError or DeviceError if the parts do not match. Does not read the indices.
  Csr(Array values, Array columns, Array offsets, Shape shape);

  std::int64_t entries() const { return values.size(); }  ///< The number of entries, including zeros.
  DType dtype() const { return values.dtype(); }          ///< The dtype of the values.
  Device device() const { return values.device(); }       ///< The device that owns the memory.
  /// The arrays, for functions of structures of arrays.
  auto fields() { return std::tuple(field("values", values), field("columns", columns), field("offsets", offsets)); }

  Csr operator-() const;  ///< The negative of each value.
  /// Multiplies each value by a number or by an array without axes.
  friend Csr operator*(const Csr& a, ArrayOperand factor) { return a.scaled(std::move(factor)); }
  friend Csr operator*(ArrayOperand factor, const Csr& a) { return a.scaled(std::move(factor)); }
  /// Divides each value by a number or by an array without axes.
  friend Csr operator/(const Csr& a, ArrayOperand divisor) { return a.divided(std::move(divisor)); }
  /// The sum of two matrices, as to_csr returns it.
  friend Csr operator+(const Csr& a, const Csr& b) { return a.plus(b); }
  /// The difference of two matrices, as to_csr returns it.
  friend Csr operator-(const Csr& a, const Csr& b) { return a.plus(-b); }

 private:
  Csr scaled(ArrayOperand factor) const;
  Csr divided(ArrayOperand divisor) const;
  Csr plus(const Csr& b) const;
};

/// Throws ArgumentError unless offsets begin with 0, ascend, and end with the number of entries, and each column is in
/// range. The message names the first row that is wrong. Blocks until the device has checked all indices.
void check_indices(const Csr& a);
/// Throws ArgumentError unless each row and column is in range. The message names the first entry that is not. Blocks
/// until the device has checked all indices.
void check_indices(const Coo& a);

/// Sorts the entries by row and column, and adds those at the same place in the order in which they occur. Calls
/// check_indices, and blocks until the number of different places is known on the host. Throws ShapeError if the shape
/// or the number of entries exceeds 2^31 - 1, or if there are more than 2^30 entries and some are at the same place.
Csr to_csr(const Coo& a);
/// The elements of a matrix that are not zero. Blocks until their number is known on the host. Indices are i32 if
/// possible. Throws ShapeError if there are more than 2^31 - 1 rows.
Csr to_csr(const Array& dense);
/// The same entries with the row of each.
Coo to_coo(const Csr& a);
/// The matrix as an array (rows, columns). Entries at the same place are added, in the order in which they occur.
/// Throws ShapeError if it has more than 2^30 elements.
Array to_dense(const Csr& a);
Array to_dense(const Coo& a);
/// The transposed matrix. The entries of each row are ordered by column. Sorts the entries by column, which takes much
/// longer than a product. Throws ShapeError if the shape or the number of entries exceeds 2^31 - 1.
Csr transpose(const Csr& a);
Coo transpose(const Coo& a);  ///< The transposed matrix. Exchanges rows and columns.
/// The elements on the main diagonal: (min(rows, columns),).
Array diagonal(const Csr& a);

/// The product of a matrix (m, n) with a vector (n,), a matrix (n, k), or each matrix of a batch (..., n, k): (m,),
/// (m, k) or (..., m, k). Dtypes are promoted. The gradient with respect to `x` transposes the matrix.
Array matmul(const Csr& a, const Array& x);
/// The product of a vector (m,), a matrix (k, m), or each matrix of a batch (..., k, m) with a matrix (m, n).
/// Transposes `a` first; to multiply often, use matmul(transpose(a), x) with a stored transposed matrix.
Array matmul(const Array& x, const Csr& a);

}  // namespace tessera::sparse
