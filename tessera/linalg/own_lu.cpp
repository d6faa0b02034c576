// SPDX-License-Identifier: Apache-2.0
// LU factorisation with partial pivoting in blocks of columns (Golub and Van Loan, Matrix Computations, 4th ed.,
// section 3.4.6). Triangular systems and products of array operations compute most of it.
#include <algorithm>
#include <cmath>

#include "tessera/linalg/host.h"
#include "tessera/ops/linear_algebra.h"

namespace tessera::linalg::host::own {

namespace {

constexpr std::int64_t panel_width = 32;
constexpr std::int64_t small_system = 64;  ///< Systems up to this size are solved by loops, without launching kernels.

template <class T>
void swap_rows(T* a, std::int64_t ld, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t second) {
  if (first == second) return;
  for (std::int64_t j = begin; j < end; ++j) std::swap(a[first + j * ld], a[second + j * ld]);
}

/// Factorises columns `begin` to `end` from row `begin` on. Exchanges rows only within these columns.
template <class T>
std::int64_t factorise_panel(std::int64_t m, T* a, std::int64_t begin, std::int64_t end, Int* pivots) {
  std::int64_t singular = 0;
  for (std::int64_t k = begin; k < std::min(m, end); ++k) {
    T* column = a + k * m;
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < m; ++i)
      if (std::abs(column[i]) > std::abs(column[pivot]) || (std::isnan(column[i]) && !std::isnan(column[pivot])))
        pivot = i;
    pivots[k] = static_cast<Int>(pivot + 1);
    if (column[pivot] == 0) {
      if (singular == 0) singular = k + 1;
      continue;
    }
    swap_rows(a, m, begin, end, k, pivot);
    for (std::int64_t i = k + 1; i < m; ++i) column[i] /= column[k];
    for (std::int64_t j = k + 1; j < end; ++j)
      add_multiple(m - k - 1, -a[k + j * m], column + k + 1, a + k + 1 + j * m);
  }
  return singular;
}

}  // namespace

template <class T>
std::int64_t lu(std::int64_t m, std::int64_t n, const Buffer<T>& buffer, Int* pivots) {
  T* const a = buffer.data();
  const std::int64_t count = std::min(m, n);
  std::int64_t singular = 0;
  for (std::int64_t begin = 0; begin < count; begin += panel_width) {
    const std::int64_t end = std::min(begin + panel_width, count);
    const std::int64_t found = factorise_panel(m, a, begin, end, pivots);
    if (singular == 0) singular = found;
    for (std::int64_t k = begin; k < end; ++k) {
      swap_rows(a, m, 0, begin, k, std::int64_t{pivots[k]} - 1);
      swap_rows(a, m, end, n, k, std::int64_t{pivots[k]} - 1);
    }
    if (end == n) break;
    const Array all = buffer.matrix(m, n), rows = all.slice(0, begin, end), below = all.slice(0, end, m);
    Array right = rows.slice(1, end, n);
    solve_triangular_into(rows.slice(1, begin, end), right, {.unit_diagonal = true});
    if (end < m) multiply_into(below.slice(1, end, n), below.slice(1, begin, end), right, {.alpha = -1});
    buffer.wait();
  }
  return singular;
}

template <class T>
void lu_solve(std::int64_t n, std::int64_t columns, const Buffer<T>& factors, const Int* pivots, const Buffer<T>& b) {
  T* const x = b.data();
  for (std::int64_t k = 0; k < n; ++k) swap_rows(x, n, 0, columns, k, std::int64_t{pivots[k]} - 1);
  if (n > small_system) {
    const Array t = factors.matrix(n, n);
    Array right = b.matrix(n, columns);
    solve_triangular_into(t, right, {.unit_diagonal = true});
    solve_triangular_into(t, right, {.triangle = Triangle::upper});
    return b.wait();
  }
  const T* const a = factors.data();
  for (std::int64_t j = 0; j < columns; ++j) {
    T* const y = x + j * n;
    for (std::int64_t k = 0; k < n; ++k) add_multiple(n - k - 1, -y[k], a + k + 1 + k * n, y + k + 1);
    for (std::int64_t k = n; k-- > 0;) {
      y[k] /= a[k + k * n];
      add_multiple(k, -y[k], a + k * n, y);
    }
  }
}

#define TESSERA_INSTANTIATE(T)                                                  \
  template std::int64_t lu(std::int64_t, std::int64_t, const Buffer<T>&, Int*); \
  template void lu_solve(std::int64_t, std::int64_t, const Buffer<T>&, const Int*, const Buffer<T>&);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::linalg::host::own
