// SPDX-License-Identifier: Apache-2.0
// Internal to linalg/. Factorisations of one matrix in host memory, computed by LAPACK if a library is installed, or by
// Tessera's own algorithms (own_*.cpp). Matrices are column-major without gaps: element (i, j) of an m x n matrix is at
// i + j m. All functions exist for float and double.
#pragma once

#include "tessera/array/array.h"
#include "tessera/linalg/lapack.h"

namespace tessera::linalg::host {

/// Memory for matrices. It is an array on cpu:0, so that it comes from the pool and products can use it.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::int64_t elements)
      : array_(Array::empty({elements}, dtype_v<T>, Device{Backend::cpu, 0})), access_(array_.host_access()) {}
  T* data() const { return static_cast<T*>(access_.data()); }
  /// The m x n matrix that starts at an element.
  Array matrix(std::int64_t m, std::int64_t n, std::int64_t start = 0) const {
    return array_.slice(0, start, start + m * n).reshape({n, m}).transpose();
  }
  /// Blocks until operations that write the buffer have ended.
  void wait() const { array_.host_view(); }

 private:
  Array array_;
  HostAccess access_;
};

/// Factorises P A = L U with partial pivoting. L and U replace A. In step i, rows i and pivots[i] - 1 were exchanged.
/// Returns the number (from 1) of the first column without a nonzero pivot, or 0.
template <class T>
std::int64_t lu(std::int64_t m, std::int64_t n, const Buffer<T>& a, Int* pivots);
/// Replaces B (n x columns) by the solution of A X = B, for factors from lu.
template <class T>
void lu_solve(std::int64_t n, std::int64_t columns, const Buffer<T>& factors, const Int* pivots, const Buffer<T>& b);
/// Factorises A = Q R. R (min(m, n) x n) replaces the upper triangle of A. Q (m x q_columns) is written to `q`, whose
/// size is m times the larger of q_columns and min(m, n).
template <class T>
void qr(std::int64_t m, std::int64_t n, const Buffer<T>& a, std::int64_t q_columns, const Buffer<T>& q);
/// Computes the eigenvalues w (ascending) of the symmetric matrix whose lower triangle is in A. The eigenvectors
/// replace A if `vectors` is true. Returns false if the iteration does not converge.
template <class T>
bool eigh(std::int64_t n, const Buffer<T>& a, T* w, bool vectors);
/// The vectors that svd computes: none; the first min(m, n) columns of U and rows of V^T; or all of them.
enum class Vectors : char { none = 'N', reduced = 'S', all = 'A' };
/// Computes A = U diag(s) V^T with descending s. Overwrites A. Returns false if the iteration does not converge.
template <class T>
bool svd(std::int64_t m, std::int64_t n, const Buffer<T>& a, T* s, const Buffer<T>& u, const Buffer<T>& vt,
         Vectors vectors);

/// Tessera's own algorithms, with the same parameters.
namespace own {

template <class T>
std::int64_t lu(std::int64_t m, std::int64_t n, const Buffer<T>& a, Int* pivots);
template <class T>
void lu_solve(std::int64_t n, std::int64_t columns, const Buffer<T>& factors, const Int* pivots, const Buffer<T>& b);
template <class T>
bool eigh(std::int64_t n, T* a, T* w, bool vectors);
template <class T>
bool svd(std::int64_t m, std::int64_t n, T* a, T* s, T* u, T* vt, Vectors vectors);

/// Householder QR of the m x n matrix `a`, whose columns are `ld` apart. Reflector k is I - tau[k] v v^T with v[k] = 1.
/// The rest of v is stored below the diagonal of column k, and R on and above it.
template <class T>
void householder(std::int64_t m, std::int64_t n, T* a, std::int64_t ld, T* tau);
/// The same for a matrix without gaps, in blocks of columns: most of it is matrix products.
template <class T>
void householder(std::int64_t m, std::int64_t n, const Buffer<T>& a, T* tau);
/// Computes the upper triangular T (k x k) with H_0 H_1 ... = I - V T V^T, for the k reflectors in columns `column` to
/// column + k and in the rows from `column` on of a matrix with m rows (Schreiber and Van Loan, "A storage-efficient WY
/// representation for products of Householder transformations", 1989). Elements below the diagonal of T are set to 0.
/// The first k rows of V, with ones on the diagonal and zeros above it, are written to `top` (k x k).
template <class T>
void reflector_factor(std::int64_t m, std::int64_t k, std::int64_t column, const Buffer<T>& a, const T* tau,
                      const Buffer<T>& top, const Buffer<T>& t);
/// Multiplies C (m x columns) on the left by the product H_0 H_1 ... of `count` reflectors from householder.
template <class T>
void apply_reflectors(std::int64_t m, std::int64_t count, const T* a, std::int64_t ld, const T* tau,
                      std::int64_t columns, T* c, std::int64_t ldc);

/// The sum of products, with eight partial sums that do not depend on each other.
template <class T>
T dot(std::int64_t n, const T* x, const T* y) {
  T part[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t j = 0; j < 8; ++j) part[j] += x[i + j] * y[i + j];
  for (; i < n; ++i) part[0] += x[i] * y[i];
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
/// y += alpha x.
template <class T>
void add_multiple(std::int64_t n, T alpha, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

}  // namespace own

}  // namespace tessera::linalg::host
