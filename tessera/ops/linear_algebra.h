// SPDX-License-Identifier: Apache-2.0
// Dense linear algebra in place, for tiles of large matrices: matrix products that are added to a matrix, triangular
// systems, and Cholesky factorisation. The algorithms are blocked, use Tessera's own products, and run on every device.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Options of multiply_into.
struct Update {
  double alpha = 1;    ///< factor of the product
  double beta = 1;     ///< factor of the old contents; if it is 0, the old contents are not read, so NaN is overwritten
  bool lower = false;  ///< compute only elements on and below the diagonal
};

/// Computes c = alpha a b + beta c in place. The shapes of c, a and b are one of:
/// - (m, n), (m, k) and (k, n);
/// - (m,), (m, k) and (k,);
/// - (n,), (k,) and (k, n).
///
/// Runs one kernel and allocates nothing for the product. Sums are f32, or f64 for f64. Operands must have the same
/// float dtype and may be strided views. They may be parts of one matrix if c does not overlap a or b. Not
/// differentiable.
///
/// With `lower`, c must be square, and elements above its diagonal are neither read nor written. For example,
/// multiply_into(c, a, a.transpose(), {.lower = true}) is a symmetric rank-k update.
///
/// Throws ShapeError, DtypeError or DeviceError if the operands do not match, and ArgumentError if c overlaps a or b or
/// is broadcast.
void multiply_into(Array& c, const Array& a, const Array& b, const Update& how = {});
/// Like multiply_into, for a temporary view such as a slice.
inline void multiply_into(Array&& c, const Array& a, const Array& b, const Update& how = {}) {
  multiply_into(c, a, b, how);
}

/// The side on which the triangular matrix is multiplied.
enum class Side : std::uint8_t { left, right };
/// The triangle of a matrix that is read; the other one is ignored.
enum class Triangle : std::uint8_t { lower, upper };

/// Options of solve_triangular. They describe the triangular matrix t.
struct TriangularSystem {
  Side side = Side::left;               ///< left: t x = b; right: x t = b
  Triangle triangle = Triangle::lower;  ///< the triangle of t that is read; it refers to t before it is transposed
  bool transposed = false;              ///< use the transpose of t
  bool unit_diagonal = false;           ///< the diagonal is not read; its elements are assumed to be 1
};

/// Solves t x = b, or x t = b, for x. t is (n, n). b and x are (n, m) or a vector (n,); on the right side they are (m,
/// n) or (n,). t and b must both be f32 or both be f64.
///
/// Uses blocked substitution. The computed x solves (t + e) x = b with |e| <= c n u |t| for each column, where u is the
/// unit roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorems 8.5 and 8.10). A zero on
/// the diagonal results in infinities or NaN, like a division by zero.
///
/// Throws ShapeError, DtypeError or DeviceError if the operands do not match.
Array solve_triangular(const Array& t, const Array& b, const TriangularSystem& system = {});
/// Like solve_triangular, but overwrites b with x and allocates nothing. Not differentiable. Throws ArgumentError if b
/// overlaps t or is broadcast.
void solve_triangular_into(const Array& t, Array& b, const TriangularSystem& system = {});
inline void solve_triangular_into(const Array& t, Array&& b, const TriangularSystem& system = {}) {
  solve_triangular_into(t, b, system);
}

/// Cholesky factorisation: returns the lower triangular matrix l with a = l l^T. Its elements above the diagonal are
/// zero. a is (n, n), f32 or f64. Only its lower triangle is read.
///
/// The computed l satisfies |l l^T - a| <= c n u |l| |l|^T (Higham, theorem 10.3). The gradient treats the result as
/// a function of the lower triangle (Murray, "Differentiation of the Cholesky decomposition", 2016). Waits for the
/// device to check that a is positive definite. If it is not, throws ArgumentError with the order of the first leading
/// minor that is not positive.
Array cholesky(const Array& a);
/// Like cholesky, but in place: the lower triangle of a is replaced by l, and elements above the diagonal are
/// unchanged. Nothing is allocated, and the host does not wait. Not differentiable.
///
/// If a is not positive definite, l contains NaN from the failing column on. `failure` (one i32 on a's device) is then
/// set to `order` plus the order of the failing leading minor, unless it is already nonzero. `order` is the number of
/// rows of the whole matrix above this tile. All tiles of a matrix on a device can therefore share one zero-initialised
/// `failure`, which check_cholesky reads at the end.
void cholesky_into(Array& a, Array& failure, std::int64_t order = 0);
inline void cholesky_into(Array&& a, Array& failure, std::int64_t order = 0) { cholesky_into(a, failure, order); }
/// Waits for the device and reads `failure`, which can have any number of elements. If any element is not 0, throws the
/// ArgumentError of cholesky for the smallest order.
void check_cholesky(const Array& failure);

}  // namespace tessera
