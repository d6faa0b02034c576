// SPDX-License-Identifier: Apache-2.0
// The layouts of the blocks follow ggml's ggml-common.h and ggml-quants.c.
#include "tessera/ops/weight_formats.h"

#include <array>
#include <bit>
#include <cstring>

#include "tessera/ops/codebooks.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera::ops {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

std::uint16_t half_at(const std::byte* p) {  // p may be unaligned
  std::uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

/// A vector of four words.
using Words __attribute__((vector_size(16))) = std::uint32_t;
Words words_at(const std::byte* p) {
  Words w;
  std::memcpy(&w, p, 16);
  return w;
}

// Extracts the lowest 4 bits of 32 numbers from `bytes`, after a shift.
void low_bits(const std::byte* bytes, int shift, std::uint32_t* words) {
  const Words first = words_at(bytes) >> shift & 0x0f0f0f0f, second = words_at(bytes + 16) >> shift & 0x0f0f0f0f;
  const Words both = first | second << 4;
  std::memcpy(words, &both, 16);
}

/// In each byte, swaps the bits `mask << shift` of `a` with the bits `mask` of `b`. This is one step in the
/// transposition of a bit matrix that has the bytes of words as rows (Warren, Hacker's Delight, 7-3).
void swap_bits(std::uint32_t& a, std::uint32_t& b, int shift, std::uint32_t mask) {
  const std::uint32_t other = ((a >> shift) ^ b) & mask;
  b ^= other, a ^= other << shift;
}

// Files store the fifth bits of 32 columns in order. For each byte, this table spreads the bits to their positions in a
// word.
constexpr auto spread_bits = [] {
  std::array<std::uint32_t, 256> out{};
  for (std::uint32_t v = 0; v < 256; ++v)
    for (std::uint32_t bit = 0; bit < 8; ++bit) out[v] |= (v >> bit & 1) << (8 * (bit % 4) + bit / 4);
  return out;
}();
std::uint32_t fifth_bits(const std::byte* four) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= spread_bits[static_cast<std::size_t>(four[i])] << 2 * i;
  return word;
}

void unpack_q8_0(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b);
  // Adds 128 to signed bytes by flipping the highest bit of each.
  for (int i = 0; i < 8; i += 4) {
    const Words four = words_at(b + 2 + 4 * i) ^ 0x80808080u;
    std::memcpy(out.words[0] + i, &four, 16);
  }
}
void unpack_q4_0(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b);
  std::memcpy(out.words[0], b + 2, 16);
}
void unpack_q4_1(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b), out.minimum = half_at(b + 2);
  std::memcpy(out.words[0], b + 4, 16);
}
void unpack_q5_0(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b);
  out.words[0][4] = fifth_bits(b + 2);
  std::memcpy(out.words[0], b + 6, 16);
}
void unpack_q5_1(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b), out.minimum = half_at(b + 2);
  out.words[0][4] = fifth_bits(b + 4);
  std::memcpy(out.words[0], b + 8, 16);
}
// The codes of the two indices in a byte. Byte i of an entry contains bit i of the lower code in bit 0, and bit i of
// the upper code in bit 4.
using CodeBits = std::array<std::uint32_t, 256>;
constexpr CodeBits code_bits_of(const std::array<std::uint8_t, 16>& codes) {
  CodeBits out{};
  for (std::size_t v = 0; v < 256; ++v)
    for (std::size_t i = 0; i < 4; ++i)
      out[v] |= static_cast<std::uint32_t>((codes[v & 15] >> i & 1) | (codes[v >> 4] >> i & 1) << 4) << 8 * i;
  return out;
}
constexpr CodeBits iq4_nl_bits = code_bits_of(iq4_nl_codes), e2m1_bits = code_bits_of(e2m1_codes);
// Extracts the codes of 32 numbers from 16 bytes.
void code_bits(const CodeBits& table, const std::byte* b, std::uint32_t* out) {
  std::byte words[16];
  for (std::size_t j = 0; j < 4; ++j) {  // byte 4 k + j contains columns 4 k + j and 4 k + j + 16
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 4; ++k) bits |= table[static_cast<std::size_t>(b[4 * k + j])] << k;
    for (std::size_t i = 0; i < 4; ++i) words[4 * i + j] = static_cast<std::byte>(bits >> 8 * i);
  }
  std::memcpy(out, words, 16);
}
void unpack_iq4_nl(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b);
  code_bits(iq4_nl_bits, b + 2, out.words[0]);
}
void unpack_mxfp4(const std::byte* b, UnpackedBlock& out) {
  out.scale = mxfp4_scale(static_cast<std::uint8_t>(b[0]));
  code_bits(e2m1_bits, b + 1, out.words[0]);
}
void unpack_iq4_xs(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b);
  for (std::size_t part = 0; part < 8; ++part) {
    code_bits(iq4_nl_bits, b + 8 + 16 * part, out.words[part]);
    out.factors[part] = static_cast<std::uint8_t>(iq4_xs_factor(b, part));
  }
}

// Extracts one bit of each of 256 numbers from 32 bytes, and stores it in word `w` of each part. Bit `part` of byte
// 4i + j belongs to column 4i + j of the part.
void single_bits(const std::byte* bytes, std::size_t w, UnpackedBlock& out) {
  std::uint32_t bits[8];  // bit `part` of byte j of word i becomes bit i of byte j of word `part`
  std::memcpy(bits, bytes, 32);
  for (int i = 0; i < 4; ++i) swap_bits(bits[i], bits[i + 4], 4, 0x0f0f0f0f);
  for (int i : {0, 1, 4, 5}) swap_bits(bits[i], bits[i + 2], 2, 0x33333333);
  for (int i : {0, 2, 4, 6}) swap_bits(bits[i], bits[i + 1], 1, 0x55555555);
  for (int part = 0; part < 8; ++part) out.words[part][w] = bits[part];
}
// Extracts two bits of each of 256 numbers from 64 bytes, and stores them in words `w` and `w` + 1 of each part. In
// each group of 16 bytes, bits 2 i and 2 i + 1 belong to part i of four.
void bit_pairs(const std::byte* bytes, std::size_t w, UnpackedBlock& out) {
  for (std::size_t half = 0; half < 4; ++half) {
    std::uint32_t bits[4];
    std::memcpy(bits, bytes + 16 * half, 16);
    for (int i : {0, 1}) swap_bits(bits[i], bits[i + 2], 4, 0x0f0f0f0f);
    for (int i : {0, 2}) swap_bits(bits[i], bits[i + 1], 2, 0x33333333);
    for (std::size_t i = 0; i < 4; ++i) out.words[half / 2 * 4 + i][w + half % 2] = bits[i];
  }
}
void unpack_q2_K(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b + 80), out.minimum = half_at(b + 82) ^ 0x8000;  // the minimum is subtracted
  bit_pairs(b + 16, 0, out);
  for (int part = 0; part < 8; ++part) out.factors[part] = half_at(b + 2 * part);
}
void unpack_q3_K(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b + 108);
  bit_pairs(b + 32, 0, out);
  single_bits(b, 2, out);
  for (std::size_t part = 0; part < 8; ++part) {
    const auto factor = [&](std::size_t i) { return static_cast<std::uint8_t>(q3_K_factor(b + 96, 2 * part + i)); };
    out.factors[part] = static_cast<std::uint16_t>(factor(0) | factor(1) << 8);
  }
}

void unpack_tq2_0(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b + 64);
  bit_pairs(b, 0, out);
}

// Unpacks scale, minimum and factors of q4_K and q5_K. These formats subtract the minimum, so the packed minimum is
// negated.
void unpack_factors(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b), out.minimum = half_at(b + 2) ^ 0x8000;
  for (std::size_t part = 0; part < 8; ++part) {
    const auto [scale, minimum] = k_factors(b + 4, part);
    out.factors[part] = static_cast<std::uint16_t>(scale | minimum << 8);
  }
}
void unpack_q4_K(const std::byte* b, UnpackedBlock& out) {
  unpack_factors(b, out);
  for (int part = 0; part < 8; ++part) low_bits(b + 16 + part / 2 * 32, part % 2 * 4, out.words[part]);
}
void unpack_q5_K(const std::byte* b, UnpackedBlock& out) {
  unpack_factors(b, out);
  single_bits(b + 16, 4, out);
  for (int part = 0; part < 8; ++part) low_bits(b + 48 + part / 2 * 32, part % 2 * 4, out.words[part]);
}
void unpack_q6_K(const std::byte* b, UnpackedBlock& out) {
  out.scale = half_at(b + 208);
  bit_pairs(b + 128, 4, out);
  for (int part = 0; part < 8; ++part) {
    low_bits(b + part / 4 * 64 + part % 2 * 32, part % 4 / 2 * 4, out.words[part]);
    out.factors[part] = half_at(b + 192 + 2 * part);
  }
}

constexpr WeightLayout table[] = {
    {.format = WeightFormat::f32, .name = "f32", .columns = 1, .bytes = 4, .element = DType::f32},
    {.format = WeightFormat::f16, .name = "f16", .columns = 1, .bytes = 2, .element = DType::f16},
    {.format = WeightFormat::bf16, .name = "bf16", .columns = 1, .bytes = 2, .element = DType::bf16},
    {.format = WeightFormat::q8_0,
     .name = "q8_0",
     .columns = 32,
     .bytes = 34,
     .bits = 8,
     .offset = 128,
     .unpack = unpack_q8_0},
    {.format = WeightFormat::q4_0,
     .name = "q4_0",
     .columns = 32,
     .bytes = 18,
     .bits = 4,
     .offset = 8,
     .unpack = unpack_q4_0},
    {.format = WeightFormat::q4_1,
     .name = "q4_1",
     .columns = 32,
     .bytes = 20,
     .bits = 4,
     .minimum = true,
     .unpack = unpack_q4_1},
    {.format = WeightFormat::q5_0,
     .name = "q5_0",
     .columns = 32,
     .bytes = 22,
     .bits = 5,
     .offset = 16,
     .unpack = unpack_q5_0},
    {.format = WeightFormat::q5_1,
     .name = "q5_1",
     .columns = 32,
     .bytes = 24,
     .bits = 5,
     .minimum = true,
     .unpack = unpack_q5_1},
    {.format = WeightFormat::iq4_nl,
     .name = "iq4_nl",
     .columns = 32,
     .bytes = 18,
     .bits = 4,
     .offset = iq4_nl_offset,
     .codes = Codes::iq4_nl,
     .unpack = unpack_iq4_nl},
    {.format = WeightFormat::q4_K,
     .name = "q4_K",
     .columns = 256,
     .bytes = 144,
     .bits = 4,
     .minimum = true,
     .factor = 32,
     .factors = 8,
     .unpack = unpack_q4_K},
    {.format = WeightFormat::q5_K,
     .name = "q5_K",
     .columns = 256,
     .bytes = 176,
     .bits = 5,
     .minimum = true,
     .factor = 32,
     .factors = 8,
     .unpack = unpack_q5_K},
    {.format = WeightFormat::q6_K,
     .name = "q6_K",
     .columns = 256,
     .bytes = 210,
     .bits = 6,
     .offset = 32,
     .factor = 16,
     .factors = 8,
     .scale_at = 208,
     .unpack = unpack_q6_K},
    {.format = WeightFormat::q2_K,
     .name = "q2_K",
     .columns = 256,
     .bytes = 84,
     .bits = 2,
     .minimum = true,
     .factor = 16,
     .factors = 8,
     .scale_at = 80,
     .unpack = unpack_q2_K},
    {.format = WeightFormat::q3_K,
     .name = "q3_K",
     .columns = 256,
     .bytes = 110,
     .bits = 3,
     .offset = 4,
     .factor = 16,
     .factors = 8,
     .scale_at = 108,
     .unpack = unpack_q3_K},
    {.format = WeightFormat::iq4_xs,
     .name = "iq4_xs",
     .columns = 256,
     .bytes = 136,
     .bits = 4,
     .offset = iq4_nl_offset,
     .codes = Codes::iq4_nl,
     .factor = 32,
     .factors = 8,
     .unpack = unpack_iq4_xs},
    {.format = WeightFormat::mxfp4,
     .name = "mxfp4",
     .columns = 32,
     .bytes = 17,
     .bits = 4,
     .offset = e2m1_offset,
     .codes = Codes::e2m1,
     .scale = DType::bf16,
     .unpack = unpack_mxfp4},
    {.format = WeightFormat::iq3_xxs,
     .name = "iq3_xxs",
     .columns = 256,
     .bytes = 98,
     .bits = 3,
     .offset = 64,
     .factor = 32,
     .codebook = true,
     .unit = 0.25f,
     .unpack = unpack_iq3_xxs},
    {.format = WeightFormat::iq3_s,
     .name = "iq3_s",
     .columns = 256,
     .bytes = 110,
     .bits = 3,
     .offset = 15,
     .factor = 32,
     .factors = 8,
     .codebook = true,
     .unpack = unpack_iq3_s},
    {.format = WeightFormat::iq2_xxs,
     .name = "iq2_xxs",
     .columns = 256,
     .bytes = 66,
     .bits = 2,
     .offset = 64,
     .factor = 32,
     .codebook = true,
     .unit = 0.125f,
     .unpack = unpack_iq2_xxs},
    {.format = WeightFormat::iq2_xs,
     .name = "iq2_xs",
     .columns = 256,
     .bytes = 74,
     .bits = 2,
     .offset = 64,
     .factor = 16,
     .factors = 8,
     .codebook = true,
     .unit = 0.125f,
     .unpack = unpack_iq2_xs},
    {.format = WeightFormat::iq2_s,
     .name = "iq2_s",
     .columns = 256,
     .bytes = 82,
     .bits = 2,
     .offset = 64,
     .factor = 16,
     .factors = 8,
     .codebook = true,
     .unit = 0.125f,
     .unpack = unpack_iq2_s},
    {.format = WeightFormat::iq1_s,
     .name = "iq1_s",
     .columns = 256,
     .bytes = 50,
     .bits = 1,
     .offset = 9,
     .factor = 32,
     .factors = 8,
     .codebook = true,
     .unit = 0.125f,
     .unpack = unpack_iq1_s},
    {.format = WeightFormat::iq1_m,
     .name = "iq1_m",
     .columns = 256,
     .bytes = 56,
     .bits = 1,
     .offset = 9,
     .factor = 16,
     .factors = 12,
     .codebook = true,
     .unit = 0.125f,
     .scale_at = 54,  // of its four highest bits
     .unpack = unpack_iq1_m},
    {.format = WeightFormat::tq2_0,
     .name = "tq2_0",
     .columns = 256,
     .bytes = 66,
     .bits = 2,
     .offset = 1,
     .scale_at = 64,
     .unpack = unpack_tq2_0},
};
static_assert([] {
  for (std::size_t i = 0; i < std::size(table); ++i)
    if (table[i].format != static_cast<WeightFormat>(i)) return false;
  return std::size(table) == weight_format_count;
}());

}  // namespace

const WeightLayout& layout_of(WeightFormat format) { return table[static_cast<std::size_t>(format)]; }
std::span<const WeightLayout> weight_layouts() { return table; }

}  // namespace tessera::ops
