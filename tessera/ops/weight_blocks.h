// SPDX-License-Identifier: Apache-2.0
// ggml's block layouts and their scalar conversion to and from float: the reference that kernels are tested against.
// Layouts and rounding follow ggml's ggml-common.h and ggml-quants.c (quantize_row_q8_0_ref, quantize_row_q4_0_ref).
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/half.h"

namespace tessera {

/// 32 values: x[i] = q[i] * d.
struct BlockQ8_0 {
  half d;
  std::int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

/// 32 values: x[i] = (nibble - 8) * d; low nibbles of q are values 0 to 15, high nibbles values 16 to 31.
struct BlockQ4_0 {
  half d;
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

BlockQ8_0 quantize_q8_0(std::span<const float, 32> x);
BlockQ4_0 quantize_q4_0(std::span<const float, 32> x);
void dequantize(const BlockQ8_0& block, std::span<float, 32> out);
void dequantize(const BlockQ4_0& block, std::span<float, 32> out);

}  // namespace tessera
