// SPDX-License-Identifier: Apache-2.0
// LU and QR factorisations of block arrays, and the systems of equations that they solve. A task factorises one column
// of tiles at a time on the host, by Tessera's own algorithms, and other tasks update the remaining columns on their
// devices.
//
// Matrices are f32 or f64, and the matrix that is factorised needs square tiles. All functions throw ShapeError or
// DtypeError if the arguments do not match, and ArgumentError for block arrays over ranks.
#pragma once

#include "tessera/task/block_array.h"

namespace tessera::linalg {

/// The factors of take(a, rows, 0) = l u.
struct BlockLu {
  Array rows;    ///< i64 (m,) on current_device(): row i of l u is row rows[i] of `a`
  BlockArray l;  ///< (m, k), lower triangular with ones on the diagonal, k = min(m, n)
  BlockArray u;  ///< (k, n), upper triangular
};
/// LU factorisation of an m x n matrix. Each pivot is the largest element of its whole column, as in LAPACK's getrf, so
/// the rows are the same unless elements are equal up to rounding. A singular matrix has a zero on the diagonal of u.
/// Uses the right-looking algorithm (Golub and Van Loan, Matrix Computations, 4th ed., section 3.4.6).
BlockLu lu(const BlockArray& a);
/// Solves a x = b for square a (n, n) and b (n, k), by LU factorisation. x has the shape of b, tiles as high as those
/// of `a` and as wide as those of b. Throws ArgumentError with the column if a pivot is exactly zero. The backward
/// error is that of linalg::solve of arrays.
BlockArray solve(const BlockArray& a, const BlockArray& b);

/// The factors of a = q r.
struct BlockQr {
  BlockArray q;  ///< (m, k), orthonormal columns, k = min(m, n)
  BlockArray r;  ///< (k, n), upper triangular
};
/// QR factorisation of an m x n matrix by Householder reflections, with the signs of LAPACK. The reflections of a
/// column of tiles are applied together (Schreiber and Van Loan, "A storage-efficient WY representation for products of
/// Householder transformations", 1989).
BlockQr qr(const BlockArray& a);
/// The x that minimises the 2-norm of a x - b for each column of b, and has the smallest norm if there are several. a
/// is (m, n), b is (m, k) and x is (n, k). `a` must have full rank: throws ArgumentError if an element of the diagonal
/// of r is at most max(m, n) epsilon times the largest one.
BlockArray lstsq(const BlockArray& a, const BlockArray& b);

}  // namespace tessera::linalg
