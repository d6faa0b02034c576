// SPDX-License-Identifier: Apache-2.0
// ggml's block layouts, and scalar code that converts them to and from float. Kernels are tested against this code.
// Layouts and rounding follow ggml's ggml-common.h and ggml-quants.c (quantize_row_q8_0_ref, dequantize_row_q4_K, ...).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/half.h"
#include "tessera/ops/weight.h"

namespace tessera {

/// 32 values: x[i] = q[i] * d.
struct BlockQ8_0 {
  half d;
  std::int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

/// 32 values: x[i] = (nibble - 8) * d. The low nibbles of q are values 0 to 15, the high nibbles are values 16 to 31.
struct BlockQ4_0 {
  half d;
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

/// The values of iq4_nl's 4-bit indices before they are multiplied by the scale: kvalues_iq4nl in ggml-common.h.
inline constexpr std::array<std::int8_t, 16> iq4_nl_values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                              1,    13,   25,  38,  53,  69,  89,  113};
/// The 4-bit floats of mxfp4 with a sign, two bits of exponent and one of mantissa, times 2: E2M1 of the OCP
/// Microscaling Formats specification, version 1.0.
inline constexpr std::array<std::int8_t, 16> e2m1_values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
/// Half of the scale of an mxfp4 block, 2^(exponent - 128), as the bits of a bfloat16.
constexpr std::uint16_t mxfp4_scale(std::uint8_t exponent) {
  return static_cast<std::uint16_t>(exponent < 2 ? 0x20 << exponent : (exponent - 1) << 7);
}

/// Decodes the factors (0 to 63) of scale and minimum for part 0 to 7 of a q4_K or q5_K block. `twelve` points to its
/// 12 bytes of factors.
std::pair<std::uint8_t, std::uint8_t> k_factors(const std::byte* twelve, std::size_t part);
/// Decodes the factor (-32 to 31) of 16 numbers of a q3_K block, in the order of the numbers. `twelve` points to its 12
/// bytes of factors.
int q3_K_factor(const std::byte* twelve, std::size_t i);
/// Decodes the factor (-32 to 31) of part 0 to 7 of an iq4_xs block.
int iq4_xs_factor(const std::byte* block, std::size_t part);

BlockQ8_0 quantize_q8_0(std::span<const float, 32> x);
BlockQ4_0 quantize_q4_0(std::span<const float, 32> x);
void dequantize(const BlockQ8_0& block, std::span<float, 32> out);
void dequantize(const BlockQ4_0& block, std::span<float, 32> out);
// Decode one block in the layout of files. A block has 32 numbers, or 256 in the K, TQ, IQ1, IQ2 and IQ3
// formats and in iq4_xs.
void dequantize_q4_1(const std::byte* block, float* out);    ///< 20 bytes
void dequantize_q5_0(const std::byte* block, float* out);    ///< 22 bytes
void dequantize_q5_1(const std::byte* block, float* out);    ///< 24 bytes
void dequantize_iq4_nl(const std::byte* block, float* out);  ///< 18 bytes
void dequantize_mxfp4(const std::byte* block, float* out);   ///< 17 bytes
void dequantize_q4_K(const std::byte* block, float* out);    ///< 144 bytes
void dequantize_q5_K(const std::byte* block, float* out);    ///< 176 bytes
void dequantize_q6_K(const std::byte* block, float* out);    ///< 210 bytes
void dequantize_q2_K(const std::byte* block, float* out);    ///< 84 bytes
void dequantize_q3_K(const std::byte* block, float* out);    ///< 110 bytes
void dequantize_iq4_xs(const std::byte* block, float* out);  ///< 136 bytes
void dequantize_tq2_0(const std::byte* block, float* out);   ///< 66 bytes
// codebook_blocks.cpp
void dequantize_iq3_xxs(const std::byte* block, float* out);  ///< 98 bytes
void dequantize_iq3_s(const std::byte* block, float* out);    ///< 110 bytes
void dequantize_iq2_xxs(const std::byte* block, float* out);  ///< 66 bytes
void dequantize_iq2_xs(const std::byte* block, float* out);   ///< 74 bytes
void dequantize_iq2_s(const std::byte* block, float* out);    ///< 82 bytes
void dequantize_iq1_s(const std::byte* block, float* out);    ///< 50 bytes
void dequantize_iq1_m(const std::byte* block, float* out);    ///< 56 bytes

/// Decodes whole blocks in the layout of files. `data` need not be aligned.
std::vector<float> dequantize(WeightFormat format, std::span<const std::byte> data);

/// True for the formats that numbers can be converted to: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_K, q3_K,
/// q4_K, q5_K and q6_K.
bool can_quantize(WeightFormat format);
/// Returns the names of these formats, separated by commas, for messages.
std::string writable_formats_text();
/// Encodes whole blocks in the layout of files, with several threads. The K formats are fitted to the numbers
/// (k_block_encoder.cpp); the others have the bits of ggml's reference. Throws ArgumentError if `can_quantize(format)`
/// is false, or the number of values is not a multiple of the block size.
std::vector<std::byte> quantize(WeightFormat format, std::span<const float> values);

}  // namespace tessera
