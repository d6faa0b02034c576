// SPDX-License-Identifier: Apache-2.0
// Opens AMD's matrix product libraries. Uses hipBLASLt, or rocBLAS if hipBLASLt is not installed or does not support
// the card. Used only in this folder and its tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/backend/rocm/api.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"

namespace tessera::rocm {

struct Rocblas_;
using Rocblas = Rocblas_*;

// rocblas_operation, rocblas_datatype, rocblas_gemm_algo, rocblas_status (rocBLAS API reference, ROCm 5 to 7).
inline constexpr int rocblas_plain = 111, rocblas_transpose = 112;
inline constexpr int rocblas_f16 = 150, rocblas_f32 = 151, rocblas_bf16 = 168;
inline constexpr int rocblas_standard = 0;
inline constexpr Code rocblas_not_implemented = 2, rocblas_size_unchanged = 8, rocblas_size_increased = 9,
                      rocblas_arch_mismatch = 15;

// clang-format off
#define TESSERA_ROCBLAS(M)                                                                                      \
  M(create, rocblas_create_handle, Code(Rocblas*))                                                              \
  M(destroy, rocblas_destroy_handle, Code(Rocblas))                                                             \
  M(set_stream, rocblas_set_stream, Code(Rocblas, Stream))                                                      \
  M(set_workspace, rocblas_set_workspace, Code(Rocblas, void*, std::size_t bytes))                              \
  M(ask_size, rocblas_start_device_memory_size_query, Code(Rocblas))                                            \
  M(told_size, rocblas_stop_device_memory_size_query, Code(Rocblas, std::size_t* bytes))                        \
  M(status_text, rocblas_status_to_string, const char*(Code))                                                   \
  M(multiply, rocblas_gemm_strided_batched_ex,                                                                  \
    Code(Rocblas, int a_operation, int b_operation, int m, int n, int k, const void* alpha,                     \
         const void* a, int a_type, int lda, std::int64_t a_stride,                                             \
         const void* b, int b_type, int ldb, std::int64_t b_stride, const void* beta,                           \
         const void* c, int c_type, int ldc, std::int64_t c_stride,                                             \
         void* d, int d_type, int ldd, std::int64_t d_stride,                                                   \
         int batch, int compute_type, int algorithm, std::int32_t solution, std::uint32_t flags))
// clang-format on

#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
struct RocblasFunctions {
  TESSERA_ROCBLAS(TESSERA_MEMBER)
};
#undef TESSERA_MEMBER

/// Return the files to try. If TESSERA_HIPBLASLT_LIBRARY or TESSERA_ROCBLAS_LIBRARY is set, the result is only this
/// file ("none": no file).
std::vector<std::string> hipblaslt_candidates();
std::vector<std::string> rocblas_candidates();

/// Opens a library for the current device that matches the major version of the runtime. Returns null and sets `why` if
/// there is none. Throws KernelError if the library cannot be initialised.
std::unique_ptr<DriverBlas> open_blas(int runtime_major, std::string& why);

}  // namespace tessera::rocm
