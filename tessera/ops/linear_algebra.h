// SPDX-License-Identifier: Apache-2.0
// Dense linear algebra in place, as tiles of large matrices need it: products added to what is there, triangular
// systems, and Cholesky's factorisation. Each is written once, blocked over our own products, and runs on every device.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// How a product is added to a matrix.
struct Update {
  double alpha = 1;    ///< of the product
  double beta = 1;     ///< of what is there; with 0 that is not read, NaN or not
  bool lower = false;  ///< only the elements on and below the diagonal
};

/// c = alpha a b + beta c in place: (m, n) from (m, k) and (k, n), or a vector (m) from (m, k) and (k), or (n) from (k)
/// and (k, n). One kernel, without memory for the product; sums in f32 (f64 of f64). With `lower` c is square and
/// elements above its diagonal are neither read nor written: multiply_into(c, a, a.transpose(), {.lower = true})
/// is a symmetric rank-k update. All are floats of one dtype; any of them may be a strided view. Parts of one matrix
/// may be given as long as what is written is not read. No gradient is taken through it.
/// ShapeError; DtypeError; DeviceError; ArgumentError: c lies over a or b, or is broadcast.
void multiply_into(Array& c, const Array& a, const Array& b, const Update& how = {});
/// Into a view, such as a slice.
inline void multiply_into(Array&& c, const Array& a, const Array& b, const Update& how = {}) {
  multiply_into(c, a, b, how);
}

/// The side on which the triangular matrix is.
enum class Side : std::uint8_t { left, right };
/// Which triangle of a matrix is read; the other is not looked at.
enum class Triangle : std::uint8_t { lower, upper };

/// A system of equations with a triangular matrix t.
struct TriangularSystem {
  Side side = Side::left;               ///< left: t x = b; right: x t = b
  Triangle triangle = Triangle::lower;  ///< the part of t, as it is given, that is read
  bool transposed = false;              ///< t's transpose stands in t's place
  bool unit_diagonal = false;           ///< the diagonal is not read, and counts as ones
};

/// x of t x = b, or of x t = b: t is (n, n); b and x are (n, m), on the right (m, n), or one vector (n). f32 or f64,
/// both alike. By substitution, blocked over products: the computed x solves (t + e) x = b with |e| <= c n u |t|
/// column by column (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorems 8.5 and 8.10), where u
/// is the unit roundoff. A zero on the diagonal gives infinities or NaN, as a division does. ShapeError; DtypeError;
/// DeviceError.
Array solve_triangular(const Array& t, const Array& b, const TriangularSystem& system = {});
/// The same in b's memory: x takes b's place, and nothing is allocated. No gradient is taken through it. ArgumentError:
/// b lies over t, or is broadcast.
void solve_triangular_into(const Array& t, Array& b, const TriangularSystem& system = {});
inline void solve_triangular_into(const Array& t, Array&& b, const TriangularSystem& system = {}) {
  solve_triangular_into(t, b, system);
}

/// The lower triangular l with a = l l^T, zeros above the diagonal: a is (n, n), f32 or f64, of which the lower
/// triangle is read. The computed l has |l l^T - a| <= c n u |l| |l|^T (Higham, theorem 10.3). Waits for the device, to
/// know whether a is positive definite: ArgumentError with the order of the first leading minor that is not. Its
/// gradient is that of a function of the lower triangle (Murray, "Differentiation of the Cholesky decomposition",
/// 2016).
Array cholesky(const Array& a);
/// The same in a's memory: the lower triangle becomes l, what is above the diagonal stays, nothing is allocated and the
/// host does not wait. Where a is not positive definite, columns of l from there on hold NaN, and `failure`, an i32 of
/// one element on a's device, gets the order of that leading minor plus `order`, unless it holds another than 0
/// already: so one of zeros serves all tiles of a matrix, or one for each device, and is read once, by check_cholesky.
/// `order`: rows of the whole matrix above this tile. No gradient is taken through it.
void cholesky_into(Array& a, Array& failure, std::int64_t order = 0);
inline void cholesky_into(Array&& a, Array& failure, std::int64_t order = 0) { cholesky_into(a, failure, order); }
/// Reads `failure` (any number of them; waits for the device), and throws cholesky's ArgumentError, for the smallest
/// order, if one is not 0.
void check_cholesky(const Array& failure);

}  // namespace tessera
