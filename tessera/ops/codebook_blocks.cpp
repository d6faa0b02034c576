// SPDX-License-Identifier: Apache-2.0
// Blocks of the formats with a codebook: decoding in plain C++, and unpacking. The layouts follow ggml's ggml-common.h
// and ggml-quants.c (dequantize_row_iq2_xxs, ...).
#include <array>
#include <bit>
#include <cstring>

#include "tessera/ops/codebooks.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {
namespace {

template <class Number>
Number value_at(const std::byte* p) {  // p may be unaligned
  Number v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
std::uint32_t byte_of(const std::byte* p, std::size_t i) { return static_cast<std::uint32_t>(p[i]); }
float scale_at(const std::byte* p) { return half_value(value_at<std::uint16_t>(p)); }

/// 32 columns of a block.
struct CodebookPart {
  std::array<std::uint32_t, 8> indices;  ///< into the codebook, for 8 or 4 columns each
  std::uint32_t signs = 0;               ///< bit c is set if column c is negative
  std::array<std::uint32_t, 2> factors;  ///< of the columns 0 to 15 and 16 to 31
};

/// The signs of 32 columns from 28 bits. The last of 8 signs makes the number of negative columns even.
std::uint32_t signs_of(std::uint32_t sevens) {
  std::uint32_t signs = 0;
  for (std::uint32_t g = 0; g < 4; ++g) {
    const std::uint32_t seven = sevens >> 7 * g & 127;
    signs |= (seven | (static_cast<std::uint32_t>(std::popcount(seven)) & 1) << 7) << 8 * g;
  }
  return signs;
}

CodebookPart iq2_xxs_part(const std::byte* b, std::size_t part) {
  const std::byte* const at = b + 2 + 8 * part;
  const auto last = value_at<std::uint32_t>(at + 4);
  CodebookPart p{{}, signs_of(last), {last >> 28, last >> 28}};
  for (std::size_t g = 0; g < 4; ++g) p.indices[g] = byte_of(at, g);
  return p;
}
CodebookPart iq2_xs_part(const std::byte* b, std::size_t part) {
  const std::uint32_t factors = byte_of(b, 66 + part);
  CodebookPart p{{}, 0, {factors & 15, factors >> 4}};
  std::uint32_t sevens = 0;
  for (std::size_t g = 0; g < 4; ++g) {
    const std::uint32_t both = value_at<std::uint16_t>(b + 2 + 8 * part + 2 * g);
    p.indices[g] = both & 511, sevens |= both >> 9 << 7 * g;
  }
  p.signs = signs_of(sevens);
  return p;
}
CodebookPart iq2_s_part(const std::byte* b, std::size_t part) {
  const std::uint32_t factors = byte_of(b, 74 + part), high = byte_of(b, 66 + part);
  CodebookPart p{{}, value_at<std::uint32_t>(b + 34 + 4 * part), {factors & 15, factors >> 4}};
  for (std::size_t g = 0; g < 4; ++g) p.indices[g] = byte_of(b, 2 + 4 * part + g) | (high >> 2 * g & 3) << 8;
  return p;
}
CodebookPart iq3_xxs_part(const std::byte* b, std::size_t part) {
  const auto last = value_at<std::uint32_t>(b + 66 + 4 * part);
  CodebookPart p{{}, signs_of(last), {last >> 28, last >> 28}};
  for (std::size_t h = 0; h < 8; ++h) p.indices[h] = byte_of(b, 2 + 8 * part + h);
  return p;
}
CodebookPart iq3_s_part(const std::byte* b, std::size_t part) {
  const std::uint32_t factor = byte_of(b, 106 + part / 2) >> 4 * (part % 2) & 15, high = byte_of(b, 66 + part);
  CodebookPart p{{}, value_at<std::uint32_t>(b + 74 + 4 * part), {factor, factor}};
  for (std::size_t h = 0; h < 8; ++h) p.indices[h] = byte_of(b, 2 + 8 * part + h) | (high >> h & 1) << 8;
  return p;
}
/// `signs` contains the signs of the additional 1 / 8.
CodebookPart iq1_s_part(const std::byte* b, std::size_t part) {
  const std::uint32_t high = value_at<std::uint16_t>(b + 34 + 2 * part), factor = high >> 12 & 7;
  CodebookPart p{{}, (high & 0x8000) != 0 ? ~std::uint32_t{0} : 0, {factor, factor}};
  for (std::size_t g = 0; g < 4; ++g) p.indices[g] = byte_of(b, 2 + 4 * part + g) | (high >> 3 * g & 7) << 8;
  return p;
}
CodebookPart iq1_m_part(const std::byte* b, std::size_t part) {
  const std::uint32_t high = value_at<std::uint16_t>(b + 32 + 2 * part),
                      factors = std::uint32_t{ops::iq1_m_factors(b, part)} >> 6 * (part % 2);
  CodebookPart p{{}, 0, {factors & 7, factors >> 3 & 7}};
  for (std::size_t g = 0; g < 4; ++g) {
    p.indices[g] = byte_of(b, 4 * part + g) | (high >> 4 * g & 7) << 8;
    if ((high >> 4 * g & 8) != 0) p.signs |= 0xffu << 8 * g;
  }
  return p;
}

/// Decodes a block. `number` returns the number of column c, without its sign, from an entry of the codebook.
template <class Part, class Number>
void decode(WeightFormat format, const std::byte* b, float scale, float* out, std::size_t columns_of_entry,
            const Part& part_of, const Number& number) {
  const std::span<const std::uint16_t> book = ops::codebook_of(format);
  for (std::size_t part = 0; part < 8; ++part) {
    const CodebookPart p = part_of(b, part);
    for (std::size_t c = 0; c < 32; ++c) {
      const float factor = static_cast<float>(2 * p.factors[c / 16] + 1);
      const std::uint32_t entry = book[p.indices[c / columns_of_entry]];
      out[32 * part + c] = scale * factor * number(entry, c % columns_of_entry, (p.signs >> c & 1) != 0);
    }
  }
}

float iq1_number(std::uint32_t entry, std::size_t c, bool negative) {
  return static_cast<float>(entry >> 2 * c & 3) - 1 + (negative ? -0.125f : 0.125f);
}
float iq2_number(std::uint32_t entry, std::size_t c, bool negative) {
  const float magnitude = ops::iq2_magnitudes[entry >> 2 * c & 3];
  return negative ? -magnitude : magnitude;
}

}  // namespace

void dequantize_iq2_xxs(const std::byte* b, float* out) {
  decode(WeightFormat::iq2_xxs, b, scale_at(b) * 0.125f, out, 8, iq2_xxs_part, iq2_number);
}
void dequantize_iq2_xs(const std::byte* b, float* out) {
  decode(WeightFormat::iq2_xs, b, scale_at(b) * 0.125f, out, 8, iq2_xs_part, iq2_number);
}
void dequantize_iq2_s(const std::byte* b, float* out) {
  decode(WeightFormat::iq2_s, b, scale_at(b) * 0.125f, out, 8, iq2_s_part, iq2_number);
}
void dequantize_iq3_xxs(const std::byte* b, float* out) {
  decode(WeightFormat::iq3_xxs, b, scale_at(b) * 0.25f, out, 4, iq3_xxs_part,
         [](std::uint32_t entry, std::size_t c, bool negative) {
           const float magnitude = ops::iq3_xxs_magnitudes[entry >> 4 * c & 7];
           return negative ? -magnitude : magnitude;
         });
}
void dequantize_iq3_s(const std::byte* b, float* out) {
  decode(WeightFormat::iq3_s, b, scale_at(b), out, 4, iq3_s_part,
         [](std::uint32_t entry, std::size_t c, bool negative) {
           const auto magnitude = static_cast<float>(2 * (entry >> 4 * c & 7) + 1);
           return negative ? -magnitude : magnitude;
         });
}
void dequantize_iq1_s(const std::byte* b, float* out) {
  decode(WeightFormat::iq1_s, b, scale_at(b), out, 8, iq1_s_part, iq1_number);
}
void dequantize_iq1_m(const std::byte* b, float* out) {
  decode(WeightFormat::iq1_m, b, half_value(ops::iq1_m_scale(b)), out, 8, iq1_m_part, iq1_number);
}

namespace ops {

std::uint16_t iq1_m_factors(const std::byte* b, std::size_t part) {
  return value_at<std::uint16_t>(b + 48 + part / 2 * 2) & 0xfff;
}
std::uint16_t iq1_m_scale(const std::byte* b) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < 4; ++i)
    bits |= static_cast<std::uint32_t>(value_at<std::uint16_t>(b + 48 + 2 * i)) >> 12 << 4 * i;
  return static_cast<std::uint16_t>(bits);
}

namespace {

/// Moves bit c of the signs of 32 columns to bit 8 j + i, where c = 4 i + j.
std::uint32_t spread_signs(std::uint32_t signs) {
  std::uint32_t word = 0;
  for (std::uint32_t i = 0; i < 8; ++i)
    for (std::uint32_t j = 0; j < 4; ++j) word |= (signs >> (4 * i + j) & 1) << (8 * j + i);
  return word;
}
/// Replaces the last of 8 signs, which kernels compute from the others, by bit g of `four`.
std::uint32_t signs_with(std::uint32_t signs, std::uint32_t four) {
  std::uint32_t word = spread_signs(signs) & 0x55ffffff;
  for (std::uint32_t g = 0; g < 4; ++g) word |= (four >> g & 1) << (25 + 2 * g);
  return word;
}
std::uint32_t low_bytes(const CodebookPart& p, std::size_t first) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word |= (p.indices[first + i] & 255) << 8 * i;
  return word;
}
/// Bits 8 and above of the indices, `bits` of each.
std::uint32_t high_bits(const CodebookPart& p, std::size_t count, std::size_t bits) {
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < count; ++i) all |= p.indices[i] >> 8 << bits * i;
  return all;
}

template <class Part, class Store>
void unpack_parts(const std::byte* b, UnpackedBlock& out, const Part& part_of, const Store& store) {
  out.scale = value_at<std::uint16_t>(b);
  for (std::size_t part = 0; part < 8; ++part) {
    const CodebookPart p = part_of(b, part);
    out.words[part][0] = low_bytes(p, 0);
    store(p, out.words[part], out.factors[part]);
  }
}

}  // namespace

void unpack_iq2_xxs(const std::byte* b, UnpackedBlock& out) {
  unpack_parts(b, out, iq2_xxs_part, [](const CodebookPart& p, std::uint32_t* words, std::uint16_t&) {
    words[1] = signs_with(p.signs, p.factors[0]);
  });
}
void unpack_iq2_xs(const std::byte* b, UnpackedBlock& out) {
  unpack_parts(b, out, iq2_xs_part, [](const CodebookPart& p, std::uint32_t* words, std::uint16_t& factor) {
    words[1] = signs_with(p.signs, high_bits(p, 4, 1));
    factor = static_cast<std::uint16_t>(p.factors[0] | p.factors[1] << 4);
  });
}
void unpack_iq2_s(const std::byte* b, UnpackedBlock& out) {
  unpack_parts(b, out, iq2_s_part, [](const CodebookPart& p, std::uint32_t* words, std::uint16_t& factor) {
    words[1] = spread_signs(p.signs);
    factor = static_cast<std::uint16_t>(p.factors[0] | p.factors[1] << 4 | high_bits(p, 4, 2) << 8);
  });
}
void unpack_iq3_xxs(const std::byte* b, UnpackedBlock& out) {
  unpack_parts(b, out, iq3_xxs_part, [](const CodebookPart& p, std::uint32_t* words, std::uint16_t&) {
    words[1] = low_bytes(p, 4), words[2] = signs_with(p.signs, p.factors[0]);
  });
}
void unpack_iq3_s(const std::byte* b, UnpackedBlock& out) {
  unpack_parts(b, out, iq3_s_part, [](const CodebookPart& p, std::uint32_t* words, std::uint16_t& factor) {
    words[1] = low_bytes(p, 4), words[2] = spread_signs(p.signs);
    factor = static_cast<std::uint16_t>(high_bits(p, 8, 1) | p.factors[0] << 8);
  });
}
void unpack_iq1_s(const std::byte* b, UnpackedBlock& out) {
  out.scale = value_at<std::uint16_t>(b);
  for (std::size_t part = 0; part < 8; ++part) {
    out.words[part][0] = value_at<std::uint32_t>(b + 2 + 4 * part);
    out.factors[part] = value_at<std::uint16_t>(b + 34 + 2 * part);
  }
}
void unpack_iq1_m(const std::byte* b, UnpackedBlock& out) {
  out.scale = iq1_m_scale(b);
  for (std::size_t part = 0; part < 8; ++part) {
    out.words[part][0] = value_at<std::uint32_t>(b + 4 * part);
    out.factors[part] = value_at<std::uint16_t>(b + 32 + 2 * part);
  }
  for (std::size_t i = 0; i < 4; ++i) out.factors[8 + i] = iq1_m_factors(b, 2 * i);
}

}  // namespace ops
}  // namespace tessera
