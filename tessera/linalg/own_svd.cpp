// SPDX-License-Identifier: Apache-2.0
// Singular values by one-sided Jacobi rotations of the triangular factor of a QR factorisation (Drmac and Veselic, "New
// fast and accurate Jacobi SVD algorithm", SIAM J. Matrix Anal. Appl. 29, 2008; without its pivoting).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/linalg/host.h"

namespace tessera::linalg::host::own {

namespace {

/// Rotates pairs of columns of w (n x n) until they are orthogonal, and applies the rotations to the columns of v
/// unless it is null. Sums are f64, so that squares of small f32 numbers do not underflow. Returns false after 60
/// sweeps.
template <class T>
bool orthogonalise(std::int64_t n, T* w, T* v) {
  const double bound = std::sqrt(static_cast<double>(n)) * std::numeric_limits<T>::epsilon();
  constexpr double least = 1e-290;  // columns whose square is below it count as zero
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool rotated = false;
    for (std::int64_t p = 0; p + 1 < n; ++p)
      for (std::int64_t q = p + 1; q < n; ++q) {
        T* const x = w + p * n;
        T* const y = w + q * n;
        double xx[4] = {}, yy[4] = {}, xy[4] = {};
        for (std::int64_t i = 0; i < n; ++i) {
          const double a = x[i], b = y[i];
          xx[i % 4] += a * a, yy[i % 4] += b * b, xy[i % 4] += a * b;
        }
        const auto total = [](const double* part) { return (part[0] + part[1]) + (part[2] + part[3]); };
        const double alpha = total(xx), beta = total(yy), gamma = total(xy);
        if (alpha < least || beta < least || std::abs(gamma) <= bound * std::sqrt(alpha) * std::sqrt(beta)) continue;
        rotated = true;
        const double zeta = (beta - alpha) / (2 * gamma);
        const double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
        const T c = static_cast<T>(1 / std::hypot(1.0, t)), s = static_cast<T>(t / std::hypot(1.0, t));
        const auto rotate = [&](T* first, T* second) {
          for (std::int64_t i = 0; i < n; ++i) {
            const T old = first[i];
            first[i] = c * old - s * second[i];
            second[i] = s * old + c * second[i];
          }
        };
        rotate(x, y);
        if (v != nullptr) rotate(v + p * n, v + q * n);
      }
    if (!rotated) return true;
  }
  return false;
}

/// Replaces columns `rank` to n of the n x n matrix by an orthonormal complement of the other columns.
template <class T>
void complete_basis(std::int64_t n, std::int64_t rank, T* w) {
  std::vector<T> reflectors(w, w + n * rank), tau(static_cast<std::size_t>(n));
  householder(n, rank, reflectors.data(), n, tau.data());
  std::fill(w + n * rank, w + n * n, T(0));
  for (std::int64_t k = rank; k < n; ++k) w[k + k * n] = 1;
  apply_reflectors(n, rank, reflectors.data(), n, tau.data(), n - rank, w + n * rank, n);
}

template <class T>
std::vector<T> transposed(std::int64_t m, std::int64_t n, const T* a) {
  std::vector<T> out(static_cast<std::size_t>(m * n));
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < m; ++i) out[static_cast<std::size_t>(j + i * n)] = a[i + j * m];
  return out;
}

/// svd for m >= n. The columns of `v` are the right singular vectors.
template <class T>
bool tall_svd(std::int64_t m, std::int64_t n, T* a, T* s, T* u, T* v, Vectors vectors) {
  if (vectors == Vectors::all) {
    std::fill_n(u, m * m, T(0));
    for (std::int64_t i = n; i < m; ++i) u[i + i * m] = 1;
  }
  if (n == 0) return true;
  T largest = 0;
  for (std::int64_t i = 0; i < m * n; ++i) largest = std::max(largest, std::abs(a[i]));
  // Scaling by a power of two is exact and avoids overflow.
  const int exponent = largest == 0 ? 0 : std::ilogb(largest);
  for (std::int64_t i = 0; i < m * n; ++i) a[i] = std::scalbn(a[i], -exponent);

  const auto size = static_cast<std::size_t>(n);
  std::vector<T> tau(size), w(size * size), left;
  householder(m, n, a, m, tau.data());
  // With W = R^T, W left = right diag(s) gives R = left diag(s) right^T.
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i <= j; ++i) w[static_cast<std::size_t>(j + i * n)] = a[i + j * m];
  if (vectors != Vectors::none) {
    left.resize(size * size);
    for (std::size_t i = 0; i < size; ++i) left[i * (size + 1)] = 1;
  }
  if (!orthogonalise(n, w.data(), vectors == Vectors::none ? nullptr : left.data())) return false;

  std::vector<double> norms(size);
  for (std::size_t k = 0; k < size; ++k) {
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) sum += double{w[i + k * size]} * double{w[i + k * size]};
    norms[k] = sum < 1e-290 ? 0 : std::sqrt(sum);
  }
  std::vector<std::int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::int64_t i) { return norms[static_cast<std::size_t>(i)]; });
  std::int64_t rank = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto from = static_cast<std::size_t>(order[static_cast<std::size_t>(k)]);
    s[k] = std::scalbn(static_cast<T>(norms[from]), exponent);
    if (vectors == Vectors::none) continue;
    if (norms[from] > 0) {
      for (std::size_t i = 0; i < size; ++i)
        v[k * n + static_cast<std::int64_t>(i)] = static_cast<T>(double{w[i + from * size]} / norms[from]);
      ++rank;
    }
    T* const column = u + k * m;
    std::copy_n(left.data() + from * size, n, column);
    std::fill(column + n, column + m, T(0));
  }
  if (vectors == Vectors::none) return true;
  complete_basis(n, rank, v);
  apply_reflectors(m, n, a, m, tau.data(), vectors == Vectors::all ? m : n, u, m);
  return true;
}

}  // namespace

template <class T>
bool svd(std::int64_t m, std::int64_t n, T* a, T* s, T* u, T* vt, Vectors vectors) {
  const bool wide = m < n;
  std::vector<T> turned = wide ? transposed(m, n, a) : std::vector<T>();
  // For a wide matrix, A^T = U' diag(s) V'^T, so U = V' and V^T = U'^T.
  const std::int64_t rows = std::max(m, n), columns = std::min(m, n);
  const std::int64_t u_columns = vectors == Vectors::all ? rows : columns;
  std::vector<T> other(
      vectors == Vectors::none ? 0 : static_cast<std::size_t>(wide ? rows * u_columns : columns * columns));
  if (!tall_svd(rows, columns, wide ? turned.data() : a, s, wide ? other.data() : u, wide ? u : other.data(), vectors))
    return false;
  if (vectors == Vectors::none) return true;
  const std::vector<T> result = wide ? transposed(rows, u_columns, other.data()) : transposed(n, n, other.data());
  std::ranges::copy(result, vt);
  return true;
}

template bool svd(std::int64_t, std::int64_t, float*, float*, float*, float*, Vectors);
template bool svd(std::int64_t, std::int64_t, double*, double*, double*, double*, Vectors);

}  // namespace tessera::linalg::host::own
