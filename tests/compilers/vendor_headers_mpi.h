// SPDX-License-Identifier: Apache-2.0
// Compares tessera/dist/mpi_api.h with an mpi.h, which was included before. Differences in signatures and constants are
// compile errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tessera/dist/mpi_api.h"
#include "tests/compilers/vendor_headers.h"

namespace tessera::test {

/// The value of a handle of MPI.
template <class T>
std::uintptr_t value_of(T handle) {
  std::uintptr_t value = 0;
  std::memcpy(&value, &handle, sizeof handle);
  return value;
}

// A template, because `Handle` is an argument of the macro's types.
template <class Handle>
constexpr bool mpi_functions_match() {
  TESSERA_MPI(TESSERA_SAME)
  static_assert(sizeof(Handle) == sizeof(MPI_Comm) && sizeof(Handle) == sizeof(MPI_Request));
  static_assert(sizeof(Handle) == sizeof(MPI_Datatype) && sizeof(Handle) == sizeof(MPI_Errhandler));
  return true;
}
constexpr bool mpi_constants_match(const dist::MpiConstants& ours) {
  static_assert(Same<int(char*, int*), decltype(::MPI_Get_library_version)>::value);
  static_assert(Same<int(int*, int*), decltype(::MPI_Get_version)>::value);
  static_assert(MPI_SUCCESS == dist::mpi_success);
  static_assert(MPI_MAX_ERROR_STRING <= dist::mpi_error_text);
  static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= dist::mpi_version_text);
  static_assert(sizeof(MPI_Status) <= sizeof(dist::MpiStatus) && alignof(MPI_Status) <= alignof(dist::MpiStatus));
  return ours.any_source == MPI_ANY_SOURCE && ours.thread_funneled == MPI_THREAD_FUNNELED &&
         ours.thread_serialized == MPI_THREAD_SERIALIZED && ours.thread_multiple == MPI_THREAD_MULTIPLE &&
         ours.status_bytes == sizeof(MPI_Status) && ours.status_source == offsetof(MPI_Status, MPI_SOURCE);
}
/// For implementations whose handles are numbers.
inline bool mpi_handles_match(const dist::MpiHandles& ours) {
  return ours.comm_world == value_of(MPI_COMM_WORLD) && ours.comm_null == value_of(MPI_COMM_NULL) &&
         ours.byte == value_of(MPI_BYTE) && ours.errors_return == value_of(MPI_ERRORS_RETURN);
}

}  // namespace tessera::test
