// SPDX-License-Identifier: Apache-2.0
// CLBlast, a library of matrix products for OpenCL: finding, opening and calling it. f32 only, since it sums f16
// products in f16. Used within this folder and by its tests.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/backend/opencl/api.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"

namespace tessera::cl {

// CLBlastLayout, CLBlastTranspose, CLBlastStatusCode (clblast_c.h of CLBlast 1.5).
inline constexpr int clblast_rows = 101, clblast_plain = 111, clblast_transposed = 112;

// X-macro: member of the table, symbol in the library, type.
// clang-format off
#define TESSERA_CLBLAST(M)                                                                                      \
  M(workspace, CLBlastSGemmTempBufferSize,                                                                      \
    Code(int layout, int a_transposed, int b_transposed, std::size_t m, std::size_t n, std::size_t k,           \
         std::size_t a_offset, std::size_t lda, std::size_t b_offset, std::size_t ldb,                          \
         std::size_t c_offset, std::size_t ldc, Queue*, std::size_t* bytes))                                    \
  M(multiply, CLBlastSgemmWithTempBuffer,                                                                       \
    Code(int layout, int a_transposed, int b_transposed, std::size_t m, std::size_t n, std::size_t k,           \
         float alpha, Memory a, std::size_t a_offset, std::size_t lda, Memory b, std::size_t b_offset,          \
         std::size_t ldb, float beta, Memory c, std::size_t c_offset, std::size_t ldc, Queue*, Event*,          \
         Memory workspace))                                                                                     \
  M(multiply_batch, CLBlastSgemmStridedBatched,                                                                 \
    Code(int layout, int a_transposed, int b_transposed, std::size_t m, std::size_t n, std::size_t k,           \
         float alpha, Memory a, std::size_t a_offset, std::size_t lda, std::size_t a_stride, Memory b,          \
         std::size_t b_offset, std::size_t ldb, std::size_t b_stride, float beta, Memory c,                     \
         std::size_t c_offset, std::size_t ldc, std::size_t c_stride, std::size_t batch, Queue*, Event*))
// clang-format on

#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
struct ClblastFunctions {
  TESSERA_CLBLAST(TESSERA_MEMBER)
};
#undef TESSERA_MEMBER

/// The file in TESSERA_CLBLAST_LIBRARY ("none": no file), otherwise the usual ones.
std::vector<std::string> clblast_candidates();

/// Returns null and sets `why` if there is none. `queue` is only used to get its device.
std::unique_ptr<DriverBlas> open_clblast(Queue queue, std::string& why);

}  // namespace tessera::cl
