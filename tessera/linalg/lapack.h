// SPDX-License-Identifier: Apache-2.0
// Internal to linalg/. Opens a LAPACK library at run time: OpenBLAS, the reference LAPACK, or another library with the
// symbols and 32-bit integers (LP64) of Fortran compilers. The declarations follow LAPACK 3.11
// (https://netlib.org/lapack/explore-html).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::linalg::host {

using Int = std::int32_t;    ///< INTEGER of Fortran
using Length = std::size_t;  ///< the length of a character argument, passed after all others

/// X(member, suffix of the symbol, type) for each function that is used. The prefix is s or d.
#define TESSERA_LAPACK(X)                                                                                            \
  X(getrf, "getrf_", void(const Int* m, const Int* n, T* a, const Int* lda, Int* pivots, Int* info))                 \
  X(getrs, "getrs_",                                                                                                 \
    void(const char* trans, const Int* n, const Int* columns, const T* a, const Int* lda, const Int* pivots, T* b,   \
         const Int* ldb, Int* info, Length))                                                                         \
  X(geqrf, "geqrf_",                                                                                                 \
    void(const Int* m, const Int* n, T* a, const Int* lda, T* tau, T* work, const Int* lwork, Int* info))            \
  X(orgqr, "orgqr_",                                                                                                 \
    void(const Int* m, const Int* n, const Int* k, T* a, const Int* lda, const T* tau, T* work, const Int* lwork,    \
         Int* info))                                                                                                 \
  X(syevd, "syevd_",                                                                                                 \
    void(const char* job, const char* triangle, const Int* n, T* a, const Int* lda, T* w, T* work, const Int* lwork, \
         Int* integers, const Int* lintegers, Int* info, Length, Length))                                            \
  X(gesdd, "gesdd_",                                                                                                 \
    void(const char* job, const Int* m, const Int* n, T* a, const Int* lda, T* s, T* u, const Int* ldu, T* vt,       \
         const Int* ldvt, T* work, const Int* lwork, Int* integers, Int* info, Length))

template <class T>
struct LapackFunctions {
#define TESSERA_MEMBER(member, suffix, ...) \
  using member##_type = __VA_ARGS__;        \
  member##_type* member = nullptr;
  TESSERA_LAPACK(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

/// The library of this process, or the reason why there is none.
struct Lapack {
  bool loaded = false;
  std::string name;    ///< "OpenBLAS 0.3.21", or "LAPACK" if the library does not report a name
  std::string file;    ///< the file that was opened
  std::string reason;  ///< why no library is used
  LapackFunctions<float> f32;
  LapackFunctions<double> f64;

  template <class T>
  const LapackFunctions<T>& functions() const {
    if constexpr (sizeof(T) == sizeof(float))
      return f32;
    else
      return f64;
  }
};

/// Returns the library. The first call opens the file in TESSERA_LAPACK_LIBRARY ("none": no library), otherwise
/// libopenblas.so.0 or liblapack.so.3. A library without one of the functions, or with 64-bit integers, is not used.
/// Limits OpenBLAS to the threads of the executor.
const Lapack& lapack();

}  // namespace tessera::linalg::host
