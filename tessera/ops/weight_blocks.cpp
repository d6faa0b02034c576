// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/weight_blocks.h"

#include <algorithm>
#include <cmath>

namespace tessera {

// Into [low, high]; NaN, which no model should hold, becomes `low` rather than undefined behaviour.
static float bounded(float v, float low, float high) { return v >= low ? (v <= high ? v : high) : low; }

BlockQ8_0 quantize_q8_0(std::span<const float, 32> x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  const float d = largest / 127.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  BlockQ8_0 out{half(d), {}};
  // std::round: halves away from zero, as ggml. The bounds change nothing for finite values.
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
  // The value of largest magnitude becomes -8, the end of the range that has no counterpart.
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

}  // namespace tessera
