// SPDX-License-Identifier: Apache-2.0
// Finds, opens and calls CLBlast, an OpenCL library for matrix products. It is used only for f32, because it
// accumulates f16 products in f16. Used only in this folder and its tests.
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

/// Returns the files to try. If TESSERA_CLBLAST_LIBRARY is set, returns only this file ("none": no file).
std::vector<std::string> clblast_candidates();

/// Opens CLBlast for the device of `queue`. Returns null and sets `why` if the library is not usable.
std::unique_ptr<DriverBlas> open_clblast(Queue queue, std::string& why);

}  // namespace tessera::cl
