// SPDX-License-Identifier: Apache-2.0
// Storage types for 16-bit floats. They convert to and from float with rounding to nearest even. Arithmetic is done in
// float.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

/// Converts a float to IEEE 754 binary16 bits. Rounds to nearest even. Values that are too large become infinity,
/// denormal values are kept, and NaN becomes a quiet NaN.
constexpr std::uint16_t half_bits(float value) {
  const std::uint32_t f = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (f >> 16) & 0x8000u;
  const std::uint32_t mag = f & 0x7fffffffu;
  if (mag > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((mag >> 13) & 0x3ffu));
  if (mag >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds past 65504
  if (mag < 0x38800000u) {  // below the smallest normal: shift the significand with its hidden bit
    if (mag < 0x33000000u) return static_cast<std::uint16_t>(sign);
    const std::uint32_t shift = 126u - (mag >> 23);
    const std::uint32_t m = (mag & 0x7fffffu) | 0x800000u;
    const std::uint32_t q = m >> shift, rest = m & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
    return static_cast<std::uint16_t>(sign | (q + ((rest > tie || (rest == tie && (q & 1u))) ? 1u : 0u)));
  }
  const std::uint32_t rounded = mag + 0xfffu + ((mag >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Converts IEEE 754 binary16 bits to float. The result is exact.
constexpr float half_value(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 31u) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0u) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

/// Converts a float to bfloat16 bits. Rounds to nearest even; NaN becomes a quiet NaN.
constexpr std::uint16_t bfloat16_bits(float value) {
  const std::uint32_t f = std::bit_cast<std::uint32_t>(value);
  if ((f & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((f >> 16) | 0x40u);
  return static_cast<std::uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16);
}

/// Converts bfloat16 bits to float. The result is exact.
constexpr float bfloat16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// An IEEE 754 binary16 number in memory.
struct half {
  std::uint16_t bits = 0;  ///< The raw bits.
  constexpr half() = default;
  /// Converts, rounding to nearest even.
  constexpr explicit half(float value) : bits(half_bits(value)) {}
  /// Converts without loss.
  constexpr explicit operator float() const { return half_value(bits); }
  friend constexpr bool operator==(half, half) = default;
};

/// A bfloat16 number in memory.
struct bfloat16 {
  std::uint16_t bits = 0;  ///< The raw bits.
  constexpr bfloat16() = default;
  /// Converts, rounding to nearest even.
  constexpr explicit bfloat16(float value) : bits(bfloat16_bits(value)) {}
  /// Converts without loss.
  constexpr explicit operator float() const { return bfloat16_value(bits); }
  friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

}  // namespace tessera
