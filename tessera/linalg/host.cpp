// SPDX-License-Identifier: Apache-2.0
#include "tessera/linalg/host.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera::linalg::host {

namespace {

Int to_int(std::int64_t n) { return static_cast<Int>(n); }
/// The leading dimension of a matrix with n rows. LAPACK requires at least 1.
Int leading(std::int64_t n) { return to_int(std::max<std::int64_t>(1, n)); }

/// Calls a function twice: `call(work, lwork)` first with lwork = -1, so that it reports the size of its workspace.
template <class T, class Call>
void with_workspace(const char* operation, Call call) {
  T size = 0;
  call(&size, -1);
  // A size in f32 was rounded, perhaps down.
  const double elements =
      std::max(1.0, std::ceil(static_cast<double>(std::nextafter(size, std::numeric_limits<T>::max()))));
  if (elements > std::numeric_limits<Int>::max())
    fail<ArgumentError>({.operation = operation,
                         .with = {{"workspace", std::to_string(static_cast<std::int64_t>(elements))}},
                         .wrong = "LAPACK needs a workspace of more than 2^31 - 1 elements for a matrix of this size",
                         .remedy = "Set TESSERA_LAPACK_LIBRARY=none, which is slower"});
  const Buffer<T> work(static_cast<std::int64_t>(elements));
  call(work.data(), static_cast<Int>(elements));
}

}  // namespace

template <class T>
std::int64_t lu(std::int64_t m, std::int64_t n, const Buffer<T>& a, Int* pivots) {
  if (!lapack().loaded) return own::lu(m, n, a, pivots);
  const Int rows = to_int(m), columns = to_int(n), ld = leading(m);
  Int info = 0;
  lapack().functions<T>().getrf(&rows, &columns, a.data(), &ld, pivots, &info);
  return info;
}

template <class T>
void lu_solve(std::int64_t n, std::int64_t columns, const Buffer<T>& factors, const Int* pivots, const Buffer<T>& b) {
  if (!lapack().loaded) return own::lu_solve(n, columns, factors, pivots, b);
  const Int size = to_int(n), right = to_int(columns), ld = leading(n);
  Int info = 0;
  lapack().functions<T>().getrs("N", &size, &right, factors.data(), &ld, pivots, b.data(), &ld, &info, 1);
}

template <class T>
void qr(std::int64_t m, std::int64_t n, const Buffer<T>& a, std::int64_t q_columns, const Buffer<T>& q) {
  const std::int64_t count = std::min(m, n);
  std::vector<T> tau(static_cast<std::size_t>(std::max<std::int64_t>(1, count)));
  if (!lapack().loaded) {
    own::householder(m, n, a, tau.data());
    std::fill_n(q.data(), m * q_columns, T(0));
    for (std::int64_t i = 0; i < q_columns; ++i) q.data()[i + i * m] = 1;
    return own::apply_reflectors(m, count, a.data(), m, tau.data(), q_columns, q.data(), m);
  }
  const auto& call = lapack().functions<T>();
  const Int rows = to_int(m), columns = to_int(n), ld = leading(m), reflectors = to_int(count),
            wanted = to_int(q_columns);
  Int info = 0;
  with_workspace<T>(
      "qr", [&](T* work, Int lwork) { call.geqrf(&rows, &columns, a.data(), &ld, tau.data(), work, &lwork, &info); });
  if (q_columns == 0) return;
  std::copy_n(a.data(), m * count, q.data());
  with_workspace<T>("qr", [&](T* work, Int lwork) {
    call.orgqr(&rows, &wanted, &reflectors, q.data(), &ld, tau.data(), work, &lwork, &info);
  });
}

template <class T>
bool eigh(std::int64_t n, const Buffer<T>& a, T* w, bool vectors) {
  if (!lapack().loaded) return own::eigh(n, a.data(), w, vectors);
  const Int size = to_int(n), ld = leading(n);
  Int info = 0, integer_size = 0;
  std::vector<Int> integers(1);
  with_workspace<T>("eigh", [&](T* work, Int lwork) {
    Int lintegers = lwork == -1 ? -1 : integer_size;
    lapack().functions<T>().syevd(vectors ? "V" : "N", "L", &size, a.data(), &ld, w, work, &lwork, integers.data(),
                                  &lintegers, &info, 1, 1);
    if (lwork == -1) integer_size = integers[0], integers.resize(static_cast<std::size_t>(integer_size));
  });
  return info == 0;
}

template <class T>
bool svd(std::int64_t m, std::int64_t n, const Buffer<T>& a, T* s, const Buffer<T>& u, const Buffer<T>& vt,
         Vectors vectors) {
  if (!lapack().loaded) return own::svd(m, n, a.data(), s, u.data(), vt.data(), vectors);
  const char job = static_cast<char>(vectors);
  const Int rows = to_int(m), columns = to_int(n), ld = leading(m),
            ldvt = leading(vectors == Vectors::reduced ? std::min(m, n) : n);
  std::vector<Int> integers(static_cast<std::size_t>(8 * std::min(m, n)));
  Int info = 0;
  with_workspace<T>("svd", [&](T* work, Int lwork) {
    lapack().functions<T>().gesdd(&job, &rows, &columns, a.data(), &ld, s, u.data(), &ld, vt.data(), &ldvt, work,
                                  &lwork, integers.data(), &info, 1);
  });
  return info == 0;
}

#define TESSERA_INSTANTIATE(T)                                                                        \
  template std::int64_t lu(std::int64_t, std::int64_t, const Buffer<T>&, Int*);                       \
  template void lu_solve(std::int64_t, std::int64_t, const Buffer<T>&, const Int*, const Buffer<T>&); \
  template void qr(std::int64_t, std::int64_t, const Buffer<T>&, std::int64_t, const Buffer<T>&);     \
  template bool eigh(std::int64_t, const Buffer<T>&, T*, bool);                                       \
  template bool svd(std::int64_t, std::int64_t, const Buffer<T>&, T*, const Buffer<T>&, const Buffer<T>&, Vectors);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(double)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::linalg::host
