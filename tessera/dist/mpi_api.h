// SPDX-License-Identifier: Apache-2.0
// Declarations of the MPI functions that are called, for three binary interfaces: Open MPI's, MPICH's, and the standard
// one of MPI 5. Signatures are those of the MPI standard 5.0 (C bindings). Sources of the values: mpi.h of Open MPI
// 4.1.4; mpi.h of MPICH 4.0.2, whose values all members of the MPICH ABI Compatibility Initiative share; MPI 5.0,
// chapter 20 and appendix A. tests/compilers/vendor_headers_mpi.h compares them with the vendors' headers. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera::dist {

/// How handles, constants and statuses are represented.
enum class MpiAbi : unsigned char {
  open_mpi,  ///< handles are pointers to exported objects
  mpich,     ///< handles are ints: MPICH, Intel MPI, Cray MPICH, MVAPICH
  standard   ///< handles are pointers with fixed values: libmpi_abi of MPI 5
};

/// Memory for an MPI_Status, which has 24 (Open MPI), 20 (MPICH) or 32 bytes (standard).
struct alignas(8) MpiStatus {
  std::byte bytes[32];
};

// X-macro: member of the table, symbol, type. `Handle` is the type of all handles.
// clang-format off
#define TESSERA_MPI(M)                                                                                              \
  M(init_thread, MPI_Init_thread, int(int* count, char*** arguments, int required, int* provided))                  \
  M(query_thread, MPI_Query_thread, int(int* provided))                                                             \
  M(initialized, MPI_Initialized, int(int* flag))                                                                   \
  M(finalize, MPI_Finalize, int())                                                                                  \
  M(finalized, MPI_Finalized, int(int* flag))                                                                       \
  M(abort, MPI_Abort, int(Handle communicator, int code))                                                           \
  M(error_string, MPI_Error_string, int(int code, char* text, int* length))                                         \
  M(rank, MPI_Comm_rank, int(Handle communicator, int* rank))                                                       \
  M(size, MPI_Comm_size, int(Handle communicator, int* size))                                                       \
  M(duplicate, MPI_Comm_dup, int(Handle communicator, Handle* duplicate))                                           \
  M(barrier, MPI_Barrier, int(Handle communicator))                                                                 \
  M(free, MPI_Comm_free, int(Handle* communicator))                                                                 \
  M(set_error_handler, MPI_Comm_set_errhandler, int(Handle communicator, Handle handler))                           \
  M(send, MPI_Isend,                                                                                                \
    int(const void* data, int count, Handle datatype, int to, int tag, Handle communicator, Handle* request))       \
  M(receive, MPI_Irecv,                                                                                             \
    int(void* data, int count, Handle datatype, int from, int tag, Handle communicator, Handle* request))           \
  M(test, MPI_Test, int(Handle* request, int* flag, ::tessera::dist::MpiStatus* status))                            \
  M(cancel, MPI_Cancel, int(Handle* request))                                                                       \
  M(get_count, MPI_Get_count, int(const ::tessera::dist::MpiStatus* status, Handle datatype, int* count))
// Functions that are called before the ABI is known. The last one is new in MPI 5.
#define TESSERA_MPI_VERSIONS(M)                                                                                     \
  M(library_version, MPI_Get_library_version, int(char* text, int* length))                                         \
  M(version, MPI_Get_version, int(int* version, int* subversion))                                                   \
  M(abi_version, MPI_Abi_get_version, int(int* version, int* subversion))
// clang-format on

/// The entry points of a library.
template <class Handle>
struct MpiFunctions {
#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
  TESSERA_MPI(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

/// Constants that differ between the ABIs.
struct MpiConstants {
  int any_source;
  int thread_funneled, thread_serialized, thread_multiple;
  std::size_t status_bytes, status_source;  ///< size of an MPI_Status, and offset of MPI_SOURCE in it
};
inline constexpr MpiConstants open_mpi_constants = {-1, 1, 2, 3, 24, 0};
inline constexpr MpiConstants mpich_constants = {-2, 1, 2, 3, 20, 8};
inline constexpr MpiConstants standard_constants = {-1, 1024, 2048, 4096, 32, 0};

/// Predefined handles. Those of Open MPI are the addresses of ompi_mpi_comm_world, ompi_mpi_comm_null, ompi_mpi_byte
/// and ompi_mpi_errors_return.
struct MpiHandles {
  std::uintptr_t comm_world, comm_null, byte, errors_return;
};
inline constexpr MpiHandles mpich_handles = {0x44000000, 0x04000000, 0x4c00010d, 0x54000001};
inline constexpr MpiHandles standard_handles = {0x101, 0x100, 0x247, 0x143};

inline constexpr int mpi_success = 0;
inline constexpr std::size_t mpi_error_text = 512;     ///< largest MPI_MAX_ERROR_STRING of the three
inline constexpr std::size_t mpi_version_text = 8192;  ///< largest MPI_MAX_LIBRARY_VERSION_STRING of the three

}  // namespace tessera::dist
