// SPDX-License-Identifier: Apache-2.0
// Linear algebra with the names and conventions of the Python array API standard's `linalg` (https://data-apis.org/
// array-api/latest/extensions/linear_algebra_functions.html). Matrices are the last two axes of an array, (..., m, n),
// and each function applies to every matrix of the batch.
//
// Factorisations take f32 or f64 and run on the host: on LAPACK, if a library is installed (docs/devices.md), otherwise
// on Tessera's own algorithms, which are slower. Arrays on other devices are copied to the host and the results back;
// the first time, a warning is logged. Results are on the device of the arguments and have their dtype.
//
// All functions throw ShapeError, DtypeError or DeviceError if the arguments do not match. Those that need singular
// values or eigenvalues throw ArgumentError if a matrix contains NaN or infinity, or if the iteration does not
// converge; the message names the matrix of the batch.
#pragma once

#include <limits>

#include "tessera/array/array.h"
#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/ops/einsum.h"
#include "tessera/ops/product.h"

namespace tessera::linalg {

using tessera::kron;
using tessera::matmul;
using tessera::outer;
using tessera::tensordot;
using tessera::trace;

// Systems of equations and inverses. They use the LU factorisation with partial pivoting. The computed solution of
// A x = b solves (A + E) x = b with |E| <= c n u |L| |U| (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
// ed., theorem 9.4), where u is the unit roundoff. Differentiable.

/// Solves a x = b. a is (..., n, n). b is (n,) or (..., n, k); its batch is broadcast with that of `a`. Throws
/// ArgumentError if a matrix is singular: a pivot is exactly zero. The message names the matrix and the column.
Array solve(const Array& a, const Array& b);
/// The inverse of each matrix (..., n, n). Throws ArgumentError like solve. To solve a system, solve() is faster and
/// more accurate.
Array inv(const Array& a);
/// The determinant of each matrix: (..., n, n) gives (...). It is 0 for a singular matrix. It can overflow, but partial
/// products of the pivots do not; see slogdet.
Array det(const Array& a);
/// The determinant as sign exp(logabsdet), which does not overflow.
struct Slogdet {
  Array sign;       ///< -1, 0 or 1 (...)
  Array logabsdet;  ///< the logarithm of the absolute value (...); -infinity for a singular matrix
};
/// Returns the sign and logarithm of each determinant. Only the logarithm is differentiable.
Slogdet slogdet(const Array& a);
/// The factors of take(a, rows, 0) = l u, for one matrix.
struct Lu {
  Array rows;  ///< i64 (..., m): row i of l u is row rows[i] of `a`
  Array l;     ///< (..., m, k), lower triangular with ones on the diagonal, k = min(m, n)
  Array u;     ///< (..., k, n), upper triangular
};
/// LU factorisation with partial pivoting of (..., m, n). A singular matrix has a zero on the diagonal of u. Not
/// differentiable.
Lu lu(const Array& a);
/// The n-th power of each square matrix, by repeated squaring. A negative power is that of the inverse.
Array matrix_power(const Array& a, std::int64_t n);

// Factorisations. Their backward errors have the bounds of LAPACK's algorithms (LAPACK Users' Guide, 3rd ed., chapter
// 4).

/// Whether factors include columns that the product does not need.
enum class Mode : std::uint8_t {
  reduced,   ///< q is (..., m, k) and r is (..., k, n), with k = min(m, n)
  complete,  ///< q is (..., m, m) and r is (..., m, n)
};
/// The factors of a = q r.
struct Qr {
  Array q;  ///< orthonormal columns
  Array r;  ///< upper triangular
};
/// QR factorisation of (..., m, n) by Householder reflections. Signs are those of LAPACK: the diagonal of r can be
/// negative. Mode::reduced is differentiable where the first min(m, n) columns are independent.
Qr qr(const Array& a, Mode mode = Mode::reduced);
/// Cholesky factorisation of (..., n, n): the lower triangular l with a = l l^T, or its transpose if `upper` is true.
/// Only the lower triangle of `a` is read. Runs on the array's device, one matrix after another. Differentiable. Throws
/// ArgumentError if a matrix is not positive definite.
Array cholesky(const Array& a, bool upper = false);
/// The eigenvalues and eigenvectors of a = v diag(w) v^T.
struct Eigh {
  Array eigenvalues;   ///< w (..., n), ascending
  Array eigenvectors;  ///< v (..., n, n): column i belongs to eigenvalue i
};
/// Eigenvalues and orthonormal eigenvectors of symmetric matrices (..., n, n). Only the lower triangle is read.
/// Differentiable; the gradient is symmetric. It is infinite or NaN if the eigenvectors of equal eigenvalues are used.
Eigh eigh(const Array& a);
/// The eigenvalues of symmetric matrices, as eigh() returns them. Differentiable, also for equal eigenvalues if their
/// adjoints are equal: the gradient is v diag(g) v^T.
Array eigvalsh(const Array& a);
/// The factors of a = u diag(s) vh, with k = min(m, n).
struct Svd {
  Array u;   ///< orthonormal columns: (..., m, m), or (..., m, k)
  Array s;   ///< singular values (..., k), descending
  Array vh;  ///< orthonormal rows: (..., n, n), or (..., k, n)
};
/// Singular value decomposition of (..., m, n). `full_matrices` selects the larger shapes of u and vh; otherwise the
/// result is differentiable where singular values are distinct and, unless m = n, not zero. Throws ArgumentError for
/// full matrices if `a` has history.
Svd svd(const Array& a, bool full_matrices = true);
/// The singular values (..., min(m, n)), descending. Differentiable where they are distinct or their vectors are not
/// needed: the gradient is u diag(g) vh.
Array svdvals(const Array& a);

// Least squares, rank and norms. Singular values up to `rtol` times the largest one count as zero. The default of
// `rtol` is max(m, n) epsilon, with the epsilon of the dtype.

/// A solution of least squares.
struct Lstsq {
  Array x;                ///< (..., n), or (..., n, k)
  Array rank;             ///< the numerical rank of `a`, i64 (...)
  Array singular_values;  ///< the singular values of `a` (..., min(m, n)), descending
};
/// The x that minimises the 2-norm of a x - b for each column of b, and has the smallest norm if there are several. a
/// is
/// (..., m, n). b is (m,) or (..., m, k); its batch is broadcast with that of `a`. x is differentiable if `a` has full
/// rank (Golub and Pereyra 1973); `rank` and `singular_values` are not.
Lstsq lstsq(const Array& a, const Array& b, std::optional<double> rtol = {});
/// The Moore-Penrose pseudo-inverse: (..., m, n) gives (..., n, m). Differentiable where the rank is constant.
Array pinv(const Array& a, std::optional<double> rtol = {});
/// The number of singular values that do not count as zero, i64 (...).
Array matrix_rank(const Array& a, std::optional<double> rtol = {});

/// The norms of a matrix. NumPy's names are in parentheses.
enum class MatrixNorm : std::uint8_t {
  frobenius,            ///< the root of the sum of squares ('fro')
  nuclear,              ///< the sum of the singular values ('nuc')
  largest_singular,     ///< the largest singular value, the spectral norm (2)
  smallest_singular,    ///< the smallest singular value (-2)
  largest_column_sum,   ///< the largest sum of absolute values of a column (1)
  smallest_column_sum,  ///< the smallest sum of absolute values of a column (-1)
  largest_row_sum,      ///< the largest sum of absolute values of a row (inf)
  smallest_row_sum,     ///< the smallest sum of absolute values of a row (-inf)
};
/// A norm of each matrix: (..., m, n) gives (...), or (..., 1, 1) if `keep` is true. Throws ShapeError if the largest
/// or smallest of no numbers is needed.
Array matrix_norm(const Array& a, MatrixNorm norm = MatrixNorm::frobenius, bool keep = false);
/// The norm of the elements along `axes` (all if empty): the sum of |a|^order, to the power of 1 / order. An order of
/// infinity or -infinity returns the largest or smallest absolute value, and 0 the number of elements that are not 0.
/// `keep` keeps the axes with extent 1. As in PyTorch, the gradient at zero is zero for finite orders above 1. f32,
/// f64, f16 or bf16; norms of 16-bit floats are computed in f32.
Array vector_norm(const Array& a, double order = 2, std::vector<int> axes = {}, bool keep = false);
/// The condition number of each matrix: its norm times that of its inverse. For largest_singular it is the ratio of the
/// largest and smallest singular value, also for matrices that are not square, and infinity for a singular matrix; for
/// smallest_singular it is the inverse of that, 0 for a singular matrix. Throws ArgumentError for matrices without
/// elements and, with other norms, like inv for singular matrices.
Array cond(const Array& a, MatrixNorm norm = MatrixNorm::largest_singular);

// Products and views.

/// The cross product of vectors of three elements along an axis. Other axes are broadcast. Throws ShapeError if an
/// extent is not 3.
Array cross(const Array& a, const Array& b, int axis = -1);
/// The sum of products along an axis; other axes are broadcast.
Array vecdot(const Array& a, const Array& b, int axis = -1);
/// A view of each matrix with rows and columns exchanged.
Array matrix_transpose(const Array& a);
/// The diagonal of each matrix, as diag() returns it.
inline Array diagonal(const Array& a, std::int64_t offset = 0) { return diag(a, offset); }

/// Returns what computes factorisations: "OpenBLAS 0.3.21 (libopenblas.so.0)", or "Tessera's own algorithms" and the
/// reason why no LAPACK library is used. Opens the library.
std::string provider();

}  // namespace tessera::linalg
