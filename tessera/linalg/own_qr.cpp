// SPDX-License-Identifier: Apache-2.0
// Householder QR factorisation (Golub and Van Loan, Matrix Computations, 4th ed., algorithm 5.2.1; signs as in LAPACK).
#include <algorithm>
#include <cmath>

#include "tessera/linalg/host.h"
#include "tessera/ops/linear_algebra.h"

namespace tessera::linalg::host::own {

namespace {

constexpr std::int64_t block_width = 32;

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
void reflector_factor(std::int64_t m, std::int64_t k, std::int64_t column, const Buffer<T>& a, const T* tau,
                      const Buffer<T>& top, const Buffer<T>& t) {
  for (std::int64_t j = 0; j < k; ++j) {
    const T* const from = a.data() + column + (column + j) * m;
    T* const to = top.data() + j * k;
    std::fill_n(to, j, T(0));
    to[j] = 1;
    std::copy(from + j + 1, from + k, to + j + 1);
  }
  const Buffer<T> products(k * k);  // V^T V
  Array gram = products.matrix(k, k);
  const Array v = top.matrix(k, k);
  multiply_into(gram, v.transpose(), v, {.beta = 0});
  if (column + k < m) {
    const Array below = a.matrix(m, column + k).slice(0, column + k, m).slice(1, column, column + k);
    multiply_into(gram, below.transpose(), below);
  }
  products.wait();
  std::fill_n(t.data(), k * k, T(0));
  for (std::int64_t i = 0; i < k; ++i) {
    T* const to = t.data() + i * k;
    for (std::int64_t l = 0; l < i; ++l)
      add_multiple(l + 1, -tau[i] * products.data()[l + i * k], t.data() + l * k, to);
    to[i] = tau[i];
  }
}

template <class T>
void householder(std::int64_t m, std::int64_t n, const Buffer<T>& a, T* tau) {
  const std::int64_t count = std::min(m, n);
  if (count == 0) return;
  const Array all = a.matrix(m, n);
  for (std::int64_t begin = 0; begin < count; begin += block_width) {
    const std::int64_t end = std::min(begin + block_width, count), k = end - begin, right = n - end;
    householder(m - begin, k, a.data() + begin + begin * m, m, tau + begin);
    if (right == 0) break;
    const Buffer<T> top(k * k), t(k * k), product(k * right), scaled(k * right);
    reflector_factor(m, k, begin, a, tau + begin, top, t);
    const Array v = top.matrix(k, k), columns = all.slice(1, end, n);
    Array w = product.matrix(k, right), s = scaled.matrix(k, right);
    Array first = columns.slice(0, begin, end), others = columns.slice(0, end, m);
    const Array below = all.slice(0, end, m).slice(1, begin, end);
    multiply_into(w, v.transpose(), first, {.beta = 0});
    if (end < m) multiply_into(w, below.transpose(), others);
    multiply_into(s, t.matrix(k, k).transpose(), w, {.beta = 0});
    multiply_into(first, v, s, {.alpha = -1});
    if (end < m) multiply_into(others, below, s, {.alpha = -1});
    a.wait();
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
  template void householder(std::int64_t, std::int64_t, const Buffer<T>&, T*);                                   \
  template void reflector_factor(std::int64_t, std::int64_t, std::int64_t, const Buffer<T>&, const T*,           \
                                 const Buffer<T>&, const Buffer<T>&);                                            \
  template void apply_reflectors(std::int64_t, std::int64_t, const T*, std::int64_t, const T*, std::int64_t, T*, \
                                 std::int64_t);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::linalg::host::own
