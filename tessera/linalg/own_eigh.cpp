// SPDX-License-Identifier: Apache-2.0
// Eigenvalues of symmetric matrices: Householder tridiagonalisation, then the implicit QR algorithm with Wilkinson's
// shift (Golub and Van Loan, Matrix Computations, 4th ed., algorithms 8.3.1 to 8.3.3).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/linalg/host.h"

namespace tessera::linalg::host::own {

namespace {

/// Reduces A, of which both triangles are stored, to the tridiagonal Q^T A Q with diagonal d and off-diagonal e. Stores
/// reflector k below the subdiagonal of column k, as householder() does for the rows from 1 on.
template <class T>
void tridiagonalise(std::int64_t n, T* a, T* d, T* e, T* tau) {
  std::vector<T> v(static_cast<std::size_t>(n)), w(v.size());
  for (std::int64_t k = 0; k + 1 < n; ++k) {
    const std::int64_t rest = n - k - 1;
    T* const column = a + k + 1 + k * n;
    householder(rest, 1, column, rest, tau + k);
    e[k] = column[0];
    std::copy_n(column, rest, v.data());
    v[0] = 1;
    T* const block = a + (k + 1) * (n + 1);
    std::fill_n(w.data(), rest, T(0));
    for (std::int64_t j = 0; j < rest; ++j)
      add_multiple(rest, tau[k] * v[static_cast<std::size_t>(j)], block + j * n, w.data());
    add_multiple(rest, -tau[k] / 2 * dot(rest, w.data(), v.data()), v.data(), w.data());
    for (std::int64_t j = 0; j < rest; ++j) {
      add_multiple(rest, -w[static_cast<std::size_t>(j)], v.data(), block + j * n);
      add_multiple(rest, -v[static_cast<std::size_t>(j)], w.data(), block + j * n);
    }
  }
  for (std::int64_t k = 0; k < n; ++k) d[k] = a[k + k * n];
}

/// One implicit QR step on rows `low` to `high` of the tridiagonal matrix. Rotates the columns of z unless it is null.
template <class T>
void qr_step(std::int64_t n, std::int64_t low, std::int64_t high, T* d, T* e, T* z) {
  const T difference = (d[high - 1] - d[high]) / 2, last = e[high - 1];
  const T shift = d[high] - last * (last / (difference + std::copysign(std::hypot(difference, last), difference)));
  T x = d[low] - shift, bulge = e[low];
  for (std::int64_t k = low; k < high; ++k) {
    const T r = std::hypot(x, bulge), c = r == 0 ? 1 : x / r, s = r == 0 ? 0 : bulge / r;
    if (k > low) e[k - 1] = r;
    const T a = d[k], b = e[k], g = d[k + 1];
    d[k] = c * c * a + 2 * c * s * b + s * s * g;
    d[k + 1] = s * s * a - 2 * c * s * b + c * c * g;
    e[k] = (c * c - s * s) * b + c * s * (g - a);
    if (k + 1 < high) x = e[k], bulge = s * e[k + 1], e[k + 1] *= c;
    if (z == nullptr) continue;
    T* const first = z + k * n;
    T* const second = first + n;
    for (std::int64_t i = 0; i < n; ++i) {
      const T old = first[i];
      first[i] = c * old + s * second[i];
      second[i] = c * second[i] - s * old;
    }
  }
}

/// Diagonalises the tridiagonal matrix. Returns false after 30 n steps, LAPACK's limit.
template <class T>
bool diagonalise(std::int64_t n, T* d, T* e, T* z) {
  constexpr T epsilon = std::numeric_limits<T>::epsilon() / 2;
  T largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max({largest, std::abs(d[i]), i + 1 < n ? std::abs(e[i]) : T(0)});
  std::int64_t steps = 30 * n;
  for (std::int64_t high = n - 1; high > 0;) {
    // Setting an element to zero that is this small changes each eigenvalue by less than its backward error.
    for (std::int64_t i = 0; i < high; ++i)
      if (std::abs(e[i]) <= epsilon * std::max(std::sqrt(std::abs(d[i])) * std::sqrt(std::abs(d[i + 1])), largest / 8))
        e[i] = 0;
    if (e[high - 1] == 0) {
      --high;
      continue;
    }
    if (steps-- == 0) return false;
    std::int64_t low = high - 1;
    while (low > 0 && e[low - 1] != 0) --low;
    qr_step(n, low, high, d, e, z);
  }
  return true;
}

}  // namespace

template <class T>
bool eigh(std::int64_t n, T* a, T* w, bool vectors) {
  if (n == 0) return true;
  T largest = 0;
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = j; i < n; ++i) largest = std::max(largest, std::abs(a[i + j * n]));
  // Scaling by a power of two is exact and avoids overflow.
  const int exponent = largest == 0 ? 0 : std::ilogb(largest);
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = j; i < n; ++i) a[j + i * n] = a[i + j * n] = std::scalbn(a[i + j * n], -exponent);

  const auto size = static_cast<std::size_t>(n);
  std::vector<T> d(size), e(size), tau(size), z;
  tridiagonalise(n, a, d.data(), e.data(), tau.data());
  if (vectors) {
    z.resize(size * size);
    for (std::size_t i = 0; i < size; ++i) z[i * (size + 1)] = 1;
    apply_reflectors(n - 1, n - 1, a + 1, n, tau.data(), n - 1, z.data() + n + 1, n);
  }
  if (!diagonalise(n, d.data(), e.data(), vectors ? z.data() : nullptr)) return false;

  std::vector<std::int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int64_t i) { return d[static_cast<std::size_t>(i)]; });
  for (std::size_t k = 0; k < size; ++k) {
    w[k] = std::scalbn(d[static_cast<std::size_t>(order[k])], exponent);
    if (vectors) std::copy_n(z.data() + order[k] * n, n, a + static_cast<std::int64_t>(k) * n);
  }
  return true;
}

template bool eigh(std::int64_t, float*, float*, bool);
template bool eigh(std::int64_t, double*, double*, bool);

}  // namespace tessera::linalg::host::own
