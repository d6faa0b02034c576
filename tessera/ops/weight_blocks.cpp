// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/weight_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/ops/weight_formats.h"

namespace tessera {

// Clamps to [low, high]. NaN becomes `low`, because converting it to an integer would be undefined behaviour.
static float bounded(float v, float low, float high) { return v >= low ? (v <= high ? v : high) : low; }

BlockQ8_0 quantize_q8_0(std::span<const float, 32> x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  const float d = largest / 127.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  BlockQ8_0 out{half(d), {}};
  // std::round rounds halves away from zero, like ggml. The bounds affect only values that are not finite.
  for (std::size_t i = 0; i < 32; ++i)
    out.q[i] = static_cast<std::int8_t>(bounded(std::round(x[i] * inverse), -127.0f, 127.0f));
  return out;
}

BlockQ4_0 quantize_q4_0(std::span<const float, 32> x) {
  float largest = 0, signed_largest = 0;
  for (const float v : x) {
    if (largest < std::fabs(v)) {
      largest = std::fabs(v);
      signed_largest = v;
    }
  }
  // The value with the largest magnitude becomes -8, since +8 cannot be represented.
  const float d = signed_largest / -8.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  const auto nibble = [&](float v) {
    const float scaled = v * inverse;
    return static_cast<std::uint8_t>(bounded(scaled + 8.5f, 0.0f, 15.0f));  // truncates
  };
  BlockQ4_0 out{half(d), {}};
  for (std::size_t i = 0; i < 16; ++i) out.q[i] = static_cast<std::uint8_t>(nibble(x[i]) | nibble(x[i + 16]) << 4);
  return out;
}

void dequantize(const BlockQ8_0& block, std::span<float, 32> out) {
  const float d = static_cast<float>(block.d);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(block.q[i]) * d;
}

void dequantize(const BlockQ4_0& block, std::span<float, 32> out) {
  const float d = static_cast<float>(block.d);
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((block.q[i] & 15) - 8) * d;
    out[i + 16] = static_cast<float>((block.q[i] >> 4) - 8) * d;
  }
}

namespace {

float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return half_value(bits);
}
int byte_at(const std::byte* p, std::size_t i) { return static_cast<int>(p[i]); }
int nibble(const std::byte* p, std::size_t i) { return byte_at(p, i % 16) >> (i < 16 ? 0 : 4) & 15; }  // of 32 numbers
int bit(const std::byte* p, std::size_t i) { return byte_at(p, i / 8) >> i % 8 & 1; }

}  // namespace

std::pair<std::uint8_t, std::uint8_t> k_factors(const std::byte* twelve, std::size_t part) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(twelve[i]); };
  unsigned scale, minimum;
  if (part < 4) {
    scale = at(part) & 63, minimum = at(part + 4) & 63;
  } else {
    scale = (at(part + 4) & 15) | at(part - 4) >> 6 << 4;
    minimum = at(part + 4) >> 4 | at(part) >> 6 << 4;
  }
  return {static_cast<std::uint8_t>(scale), static_cast<std::uint8_t>(minimum)};
}

int q3_K_factor(const std::byte* twelve, std::size_t i) {
  const int low = byte_at(twelve, i % 8) >> (i < 8 ? 0 : 4) & 15, high = byte_at(twelve, 8 + i % 4) >> 2 * (i / 4) & 3;
  return (low | high << 4) - 32;
}

int iq4_xs_factor(const std::byte* b, std::size_t part) {
  const int low = byte_at(b, 4 + part / 2) >> 4 * (part % 2) & 15,
            high = byte_at(b, 2 + part / 4) >> 2 * (part % 4) & 3;
  return (low | high << 4) - 32;
}

void dequantize_q4_1(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(nibble(b + 4, i)) * d + m;
}

void dequantize_q5_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>((nibble(b + 6, i) | bit(b + 2, i) << 4) - 16) * d;
}

void dequantize_q5_1(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(nibble(b + 8, i) | bit(b + 4, i) << 4) * d + m;
}

void dequantize_iq4_nl(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = static_cast<float>(iq4_nl_values[static_cast<std::size_t>(nibble(b + 2, i))]) * d;
}

void dequantize_mxfp4(const std::byte* b, float* out) {
  const float d = bfloat16_value(mxfp4_scale(static_cast<std::uint8_t>(b[0])));
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = static_cast<float>(e2m1_values[static_cast<std::size_t>(nibble(b + 1, i))]) * d;
}

void dequantize_q4_K(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (std::size_t part = 0; part < 8; ++part) {
    const auto [scale, minimum] = k_factors(b + 4, part);
    const float step = d * scale, least = m * minimum;
    for (std::size_t i = 0; i < 32; ++i) {
      const int q = byte_at(b + 16 + part / 2 * 32, i) >> part % 2 * 4 & 15;
      out[part * 32 + i] = step * static_cast<float>(q) - least;
    }
  }
}

void dequantize_q5_K(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (std::size_t part = 0; part < 8; ++part) {
    const auto [scale, minimum] = k_factors(b + 4, part);
    const float step = d * scale, least = m * minimum;
    for (std::size_t i = 0; i < 32; ++i) {
      const int low = byte_at(b + 48 + part / 2 * 32, i) >> part % 2 * 4 & 15, high = byte_at(b + 16, i) >> part & 1;
      out[part * 32 + i] = step * static_cast<float>(low | high << 4) - least;
    }
  }
}

void dequantize_q6_K(const std::byte* b, float* out) {
  const float d = half_at(b + 208);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t upper = i / 128, part = i % 128 / 32, at = i % 32;  // halves of 128 numbers, four parts each
    const int low = byte_at(b, upper * 64 + part % 2 * 32 + at) >> part / 2 * 4 & 15,
              high = byte_at(b, 128 + upper * 32 + at) >> 2 * part & 3;
    const auto scale = static_cast<std::int8_t>(b[192 + i / 16]);
    out[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

// In q2_K, q3_K and tq2_0, bits 2 j and 2 j + 1 of 32 bytes belong to part j of 128 numbers.
static int bit_pair(const std::byte* bytes, std::size_t i) {
  return byte_at(bytes, i / 128 * 32 + i % 32) >> 2 * (i / 32 % 4) & 3;
}

void dequantize_q2_K(const std::byte* b, float* out) {
  const float d = half_at(b + 80), m = half_at(b + 82);
  for (std::size_t i = 0; i < 256; ++i) {
    const int factors = byte_at(b, i / 16);
    const float step = d * static_cast<float>(factors & 15), least = m * static_cast<float>(factors >> 4);
    out[i] = step * static_cast<float>(bit_pair(b + 16, i)) - least;
  }
}

void dequantize_q3_K(const std::byte* b, float* out) {
  const float d = half_at(b + 108);
  for (std::size_t i = 0; i < 256; ++i) {
    const float step = d * static_cast<float>(q3_K_factor(b + 96, i / 16));
    const int high = byte_at(b, i % 32) >> i / 32 & 1;
    out[i] = step * static_cast<float>((bit_pair(b + 32, i) | high << 2) - 4);
  }
}

void dequantize_tq2_0(const std::byte* b, float* out) {
  const float d = half_at(b + 64);
  for (std::size_t i = 0; i < 256; ++i) out[i] = static_cast<float>(bit_pair(b, i) - 1) * d;
}

void dequantize_iq4_xs(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (std::size_t part = 0; part < 8; ++part) {
    const float step = d * static_cast<float>(iq4_xs_factor(b, part));
    for (std::size_t i = 0; i < 32; ++i)
      out[part * 32 + i] =
          step * static_cast<float>(iq4_nl_values[static_cast<std::size_t>(nibble(b + 8 + 16 * part, i))]);
  }
}

namespace {

template <class Number>
void number_at(const std::byte* b, float* out) {
  Number v;
  std::memcpy(&v, b, sizeof v);
  *out = static_cast<float>(v);
}
template <class Block>
void block_at(const std::byte* b, float* out) {
  Block block;
  std::memcpy(&block, b, sizeof block);
  dequantize(block, std::span<float, 32>(out, 32));
}

using Decode = void (*)(const std::byte* block, float* out);
Decode decode_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return number_at<float>;
    case WeightFormat::f16: return number_at<half>;
    case WeightFormat::bf16: return number_at<bfloat16>;
    case WeightFormat::q8_0: return block_at<BlockQ8_0>;
    case WeightFormat::q4_0: return block_at<BlockQ4_0>;
    case WeightFormat::q4_1: return dequantize_q4_1;
    case WeightFormat::q5_0: return dequantize_q5_0;
    case WeightFormat::q5_1: return dequantize_q5_1;
    case WeightFormat::iq4_nl: return dequantize_iq4_nl;
    case WeightFormat::q4_K: return dequantize_q4_K;
    case WeightFormat::q5_K: return dequantize_q5_K;
    case WeightFormat::q6_K: return dequantize_q6_K;
    case WeightFormat::q2_K: return dequantize_q2_K;
    case WeightFormat::q3_K: return dequantize_q3_K;
    case WeightFormat::iq4_xs: return dequantize_iq4_xs;
    case WeightFormat::mxfp4: return dequantize_mxfp4;
    case WeightFormat::iq3_xxs: return dequantize_iq3_xxs;
    case WeightFormat::iq3_s: return dequantize_iq3_s;
    case WeightFormat::iq2_xxs: return dequantize_iq2_xxs;
    case WeightFormat::iq2_xs: return dequantize_iq2_xs;
    case WeightFormat::iq2_s: return dequantize_iq2_s;
    case WeightFormat::iq1_s: return dequantize_iq1_s;
    case WeightFormat::iq1_m: return dequantize_iq1_m;
    case WeightFormat::tq2_0: return dequantize_tq2_0;
  }
  return nullptr;
}

}  // namespace

std::vector<float> dequantize(WeightFormat format, std::span<const std::byte> data) {
  const ops::WeightLayout& layout = ops::layout_of(format);
  const Decode decode = decode_of(format);
  std::vector<float> out(data.size() / layout.bytes * layout.columns);
  for (std::size_t i = 0; i < data.size() / layout.bytes; ++i)
    decode(data.data() + i * layout.bytes, out.data() + i * layout.columns);
  return out;
}

}  // namespace tessera
