// SPDX-License-Identifier: Apache-2.0
// Dense linear algebra in place, for tiles of large matrices: products added to a matrix, triangular systems, and
// Cholesky factorisation. The algorithms are blocked over Tessera's own products and run on every device.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Options of multiply_into.
struct Update {
  double alpha = 1;    ///< factor of the product
  double beta = 1;     ///< factor of the old contents; with 0 they are not read, so NaN is overwritten
  bool lower = false;  ///< compute only the elements on and below the diagonal
};

/// Computes c = alpha a b + beta c in place: c (m, n) from a (m, k) and b (k, n); or c (m,) from (m, k) and (k,); or c
/// (n,) from (k,) and (k, n).
///
/// Runs one kernel and allocates nothing for the product. Sums are f32, or f64 for f64. With `lower`, c must be square,
/// and elements above its diagonal are neither read nor written: multiply_into(c, a, a.transpose(), {.lower = true}) is
/// a symmetric rank-k update. Operands must have the same float dtype and may be strided views. They may be parts of
/// one matrix if c does not overlap a or b. Not differentiable.
///
/// Throws ShapeError, DtypeError or DeviceError if the operands do not match, ArgumentError if c overlaps a or b or is
/// broadcast.
void multiply_into(Array& c, const Array& a, const Array& b, const Update& how = {});
/// multiply_into for a temporary view such as a slice.
inline void multiply_into(Array&& c, const Array& a, const Array& b, const Update& how = {}) {
  multiply_into(c, a, b, how);
}

/// The side on which the triangular matrix is multiplied.
enum class Side : std::uint8_t { left, right };
/// The triangle of a matrix that is read; the other one is ignored.
enum class Triangle : std::uint8_t { lower, upper };

/// Options of solve_triangular: describe the triangular matrix t.
struct TriangularSystem {
  Side side = Side::left;               ///< left: t x = b; right: x t = b
  Triangle triangle = Triangle::lower;  ///< the triangle of t that is read (before transposing)
  bool transposed = false;              ///< use the transpose of t
  bool unit_diagonal = false;           ///< the diagonal is not read and assumed to be ones
};

/// Solves t x = b, or x t = b, for x. t is (n, n); b and x are (n, m), on the right side (m, n), or one vector (n,).
/// Both must be f32 or both f64.
///
/// Uses substitution, blocked over products. The computed x solves (t + e) x = b with |e| <= c n u |t| for each column,
/// where u is the unit roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorems 8.5
/// and 8.10). A zero on the diagonal gives infinities or NaN, as a division does.
///
/// Throws ShapeError, DtypeError or DeviceError if the operands do not match.
Array solve_triangular(const Array& t, const Array& b, const TriangularSystem& system = {});
/// Like solve_triangular, but overwrites b with x and allocates nothing. Not differentiable. Throws ArgumentError if b
/// overlaps t or is broadcast.
void solve_triangular_into(const Array& t, Array& b, const TriangularSystem& system = {});
inline void solve_triangular_into(const Array& t, Array&& b, const TriangularSystem& system = {}) {
  solve_triangular_into(t, b, system);
}

/// Cholesky factorisation: returns the lower triangular l with a = l l^T and zeros above the diagonal. a is (n, n), f32
/// or f64; only its lower triangle is read.
///
/// The computed l satisfies |l l^T - a| <= c n u |l| |l|^T (Higham, theorem 10.3). The gradient is that of a function
/// of the lower triangle (Murray, "Differentiation of the Cholesky decomposition", 2016). Waits for the device to check
/// that a is positive definite. Throws ArgumentError with the order of the first leading minor that is not.
Array cholesky(const Array& a);
/// Like cholesky, but in place: the lower triangle of a becomes l, elements above the diagonal are unchanged, nothing
/// is allocated, and the host does not wait. Not differentiable.
///
/// If a is not positive definite, l contains NaN from the failing column on, and `failure` (one i32 on a's device) is
/// set to `order` plus the order of the failing leading minor, unless it already is nonzero. One zero-initialised
/// `failure` can therefore be shared by all tiles of a matrix (one per device) and be read once by check_cholesky.
/// `order` is the number of rows of the whole matrix above this tile.
void cholesky_into(Array& a, Array& failure, std::int64_t order = 0);
inline void cholesky_into(Array&& a, Array& failure, std::int64_t order = 0) { cholesky_into(a, failure, order); }
/// Reads `failure` (any number of elements; waits for the device). If any is not 0, throws the ArgumentError of
/// cholesky for the smallest order.
void check_cholesky(const Array& failure);

}  // namespace tessera
