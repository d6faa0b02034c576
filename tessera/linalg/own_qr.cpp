// SPDX-License-Identifier: Apache-2.0
// Householder QR factorisation (Golub and Van Loan, Matrix Computations, 4th ed., algorithm 5.2.1; signs as in LAPACK).
#include <algorithm>
#include <cmath>

#include "tessera/linalg/host.h"

namespace tessera::linalg::host::own {

namespace {

/// The 2-norm, scaled so that squares neither overflow nor underflow.
template <class T>
T norm_of(std::int64_t n, const T* x) {
  T largest = 0, sum = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  if (largest == 0 || !std::isfinite(largest)) return dot(n, x, x);  // 0, infinity or NaN
  for (std::int64_t i = 0; i < n; ++i) sum += (x[i] / largest) * (x[i] / largest);
  return largest * std::sqrt(sum);
}

}  // namespace

template <class T>
void householder(std::int64_t m, std::int64_t n, T* a, std::int64_t ld, T* tau) {
  for (std::int64_t k = 0; k < std::min(m, n); ++k) {
    T* const x = a + k + k * ld;
    const std::int64_t rest = m - k - 1;
    const T norm = norm_of(rest, x + 1);
    tau[k] = 0;
    if (norm == 0) continue;
    const T beta = -std::copysign(std::hypot(x[0], norm), x[0]), pivot = x[0] - beta;
    tau[k] = (beta - x[0]) / beta;
    for (std::int64_t i = 1; i <= rest; ++i) x[i] /= pivot;
    x[0] = beta;
    for (std::int64_t j = k + 1; j < n; ++j) {
      T* const y = a + k + j * ld;
      const T s = tau[k] * (y[0] + dot(rest, x + 1, y + 1));
      y[0] -= s;
      add_multiple(rest, -s, x + 1, y + 1);
    }
  }
}

template <class T>
void apply_reflectors(std::int64_t m, std::int64_t count, const T* a, std::int64_t ld, const T* tau,
                      std::int64_t columns, T* c, std::int64_t ldc) {
  for (std::int64_t k = count; k-- > 0;) {
    const T* const x = a + k + k * ld;
    const std::int64_t rest = m - k - 1;
    for (std::int64_t j = 0; j < columns; ++j) {
      T* const y = c + k + j * ldc;
      const T s = tau[k] * (y[0] + dot(rest, x + 1, y + 1));
      y[0] -= s;
      add_multiple(rest, -s, x + 1, y + 1);
    }
  }
}

#define TESSERA_INSTANTIATE(T)                                                                                   \
  template void householder(std::int64_t, std::int64_t, T*, std::int64_t, T*);                                   \
  template void apply_reflectors(std::int64_t, std::int64_t, const T*, std::int64_t, const T*, std::int64_t, T*, \
                                 std::int64_t);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::linalg::host::own
