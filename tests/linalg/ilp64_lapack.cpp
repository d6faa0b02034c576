// SPDX-License-Identifier: Apache-2.0
// A library with the symbols of LAPACK but 64-bit integers. getrf factorises the 2 x 2 matrix of the check in
// linalg/lapack.cpp; no other function may be called.
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace {

template <class T>
void factorise(T* a, std::int64_t* pivots, std::int64_t* info) {
  std::swap(a[0], a[1]), std::swap(a[2], a[3]);
  a[1] /= a[0], a[3] -= a[1] * a[2];
  pivots[0] = pivots[1] = 2;
  *info = 0;
}

}  // namespace

extern "C" {
void sgetrf_(const std::int64_t*, const std::int64_t*, float* a, const std::int64_t*, std::int64_t* pivots,
             std::int64_t* info) {
  factorise(a, pivots, info);
}
void dgetrf_(const std::int64_t*, const std::int64_t*, double* a, const std::int64_t*, std::int64_t* pivots,
             std::int64_t* info) {
  factorise(a, pivots, info);
}
#define TESSERA_UNUSED(name) \
  void name() { std::abort(); }
TESSERA_UNUSED(sgetrs_)
TESSERA_UNUSED(dgetrs_)
TESSERA_UNUSED(sgeqrf_)
TESSERA_UNUSED(dgeqrf_)
TESSERA_UNUSED(sorgqr_)
TESSERA_UNUSED(dorgqr_)
TESSERA_UNUSED(ssyevd_)
TESSERA_UNUSED(dsyevd_)
TESSERA_UNUSED(sgesdd_)
TESSERA_UNUSED(dgesdd_)
}
