// SPDX-License-Identifier: Apache-2.0
// Encoders of K formats for `quantize` (weight_blocks.h), and what all encoders share.
#pragma once

#include <cstddef>
#include <cstring>

#include "tessera/base/half.h"

namespace tessera::ops {

/// Converts to an integer from 0 to `most` by truncation. NaN becomes 0.
inline int truncated(float v, int most) {
  const auto bound = static_cast<float>(most);
  const float positive = v > 0 ? v : 0;
  return static_cast<int>(positive < bound ? positive : bound);
}
inline void put_half(std::byte* to, float v) {
  const half h(v);
  std::memcpy(to, &h, sizeof h);
}

// k_block_encoder.cpp: encode 256 numbers. The factors and integers are chosen so that the sum of
// (root mean square of the part + |x|) * error^2 is small; these weights are those of llama.cpp's q4_K.
void put_q2_K(const float* numbers, std::byte* block);  ///< 84 bytes
void put_q3_K(const float* numbers, std::byte* block);  ///< 110 bytes
void put_q4_K(const float* numbers, std::byte* block);  ///< 144 bytes
void put_q5_K(const float* numbers, std::byte* block);  ///< 176 bytes
void put_q6_K(const float* numbers, std::byte* block);  ///< 210 bytes

}  // namespace tessera::ops
