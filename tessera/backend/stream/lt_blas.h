// SPDX-License-Identifier: Apache-2.0
// Implements matrix products with cuBLASLt and hipBLASLt, whose functions differ only in names and constants. Names,
// signatures and values follow the cuBLAS library documentation (11 to 13) and the hipBLASLt API reference (ROCm 6 and
// 7). If NVIDIA's header is installed, tests/compilers/vendor_headers_cuda_test.cpp compares the declarations with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"

namespace tessera::stream {

using LtHandle = void*;  ///< handle of the library, a matmul descriptor, a layout or a preference

// X-macro: member of the table, symbol in the library without its prefix, type.
// clang-format off
#define TESSERA_LT(M)                                                                                              \
  M(create, Create, Code(LtHandle*))                                                                               \
  M(destroy, Destroy, Code(LtHandle))                                                                              \
  M(make_product, MatmulDescCreate, Code(LtHandle*, int compute, int scale))                                       \
  M(destroy_product, MatmulDescDestroy, Code(LtHandle))                                                            \
  M(set_product, MatmulDescSetAttribute, Code(LtHandle, int attribute, const void*, std::size_t))                  \
  M(make_layout, MatrixLayoutCreate,                                                                               \
    Code(LtHandle*, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t ld))                         \
  M(destroy_layout, MatrixLayoutDestroy, Code(LtHandle))                                                           \
  M(set_layout, MatrixLayoutSetAttribute, Code(LtHandle, int attribute, const void*, std::size_t))                 \
  M(make_preference, MatmulPreferenceCreate, Code(LtHandle*))                                                      \
  M(destroy_preference, MatmulPreferenceDestroy, Code(LtHandle))                                                   \
  M(set_preference, MatmulPreferenceSetAttribute, Code(LtHandle, int attribute, const void*, std::size_t))         \
  M(choose, MatmulAlgoGetHeuristic,                                                                                \
    Code(LtHandle, LtHandle product, LtHandle a, LtHandle b, LtHandle c, LtHandle d, LtHandle preference,          \
         int asked, void* results, int* found))                                                                    \
  M(multiply, Matmul,                                                                                              \
    Code(LtHandle, LtHandle product, const void* alpha, const void* a, LtHandle, const void* b, LtHandle,          \
         const void* beta, const void* c, LtHandle, void* d, LtHandle, const void* algorithm, void* workspace,     \
         std::size_t workspace_bytes, Handle stream))
// clang-format on

#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
struct LtFunctions {
  TESSERA_LT(TESSERA_MEMBER)
};
#undef TESSERA_MEMBER

/// Constants that differ between the two libraries. The values of cudaDataType_t and hipDataType are the same.
struct LtValues {
  int compute_f32, compute_tf32;                         ///< cublasComputeType_t
  int transpose;                                         ///< cublasOperation_t
  int transpose_a, transpose_b, epilogue, bias_pointer;  ///< matmul descriptor attributes
  int batch_count, batch_offset;                         ///< layout attributes
  int first_alignment;  ///< preference attribute for a, followed by b, c and d; -1: none
  std::size_t result_bytes, result_workspace, result_state;  ///< size of a heuristic result, and offsets in it
  Code not_supported;
};
inline constexpr int lt_f32 = 0, lt_f16 = 2, lt_bf16 = 14;
inline constexpr int lt_most_workspace = 1;  ///< preference attribute
inline constexpr std::uint32_t lt_bias = 4;  ///< epilogue
inline constexpr LtValues cublas_lt = {68, 77, 1, 3, 4, 7, 8, 5, 6, 5, 96, 64, 72, 15};
inline constexpr LtValues hipblas_lt = {2, 6, 112, 0, 1, 2, 3, 0, 1, -1, 56, 24, 32, 7};

/// Gets the entry points. Returns the name of the first one that is missing, or an empty string.
std::string take_lt(const os::Library& library, const std::string& prefix, LtFunctions& call);

/// Initialises the library in the current context. `plan` and `enqueue` must be called in the same context. `name` is
/// the name that DriverBlas returns. `text` converts a status to text. If it is null, messages contain the number of
/// the status. Throws KernelError if the library cannot be initialised.
std::unique_ptr<DriverBlas> make_lt_blas(const LtFunctions& call, const LtValues& values, std::string name,
                                         const char* (*text)(Code) = nullptr);

}  // namespace tessera::stream
