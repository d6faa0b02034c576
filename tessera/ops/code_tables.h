// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The value tables of iq4_nl and mxfp4 as boolean circuits, which replace byte lookups. Four words
// contain one bit each of 32 codes. The bits of the values are computed from them with bitwise operations.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/ops/weight_blocks.h"

namespace tessera::ops {

/// The table that the 4-bit codes of a format refer to.
enum class Codes : std::uint8_t {
  none,    ///< the numbers are not codes
  iq4_nl,  ///< iq4_nl_values
  e2m1     ///< e2m1_values
};

/// Added to iq4_nl_values, so that they become unsigned bytes.
inline constexpr std::int32_t iq4_nl_offset = 132;

/// The code of each value in the table. The codes were found by a search over all offsets and signs, which swapped two
/// codes as long as this made the circuit smaller. The circuit has 12 operations with up to three operands.
inline constexpr std::array<std::uint8_t, 16> iq4_nl_codes = {10, 14, 8, 9, 11, 5, 13, 15, 2, 0, 6, 12, 4, 1, 3, 7};

/// Computes the bits of value + offset, lowest first, from the bits of the codes. Each bit position of a Word belongs
/// to a different code.
template <class Word>
constexpr std::array<Word, 8> iq4_nl_circuit(Word a, Word b, Word c, Word d) {  // a is the lowest bit
  const Word either = a | ~b;
  return {~(c & d),
          (d & (a | c)) & either,
          b ^ (a & (d & (b | c))),
          c ^ (a & ~d),
          b ^ ~(a | (c & (b | d))),
          (c | (d & ~a)) & either,
          a,
          ~(d ^ (c & (~b & (d ^ a))))};
}

/// Added to e2m1_values, so that they become unsigned bytes.
inline constexpr std::int32_t e2m1_offset = 12;

/// The code of each value in the table, by its sum with the offset: 8 to 15 are their own codes, and the others have
/// even codes if they are below 8, and odd codes if they are above 15.
inline constexpr std::array<std::uint8_t, 16> e2m1_codes = {12, 13, 14, 15, 1, 3, 5, 7, 12, 11, 10, 9, 8, 6, 4, 0};

/// Like iq4_nl_circuit. The values have 5 bits.
template <class Word>
constexpr std::array<Word, 5> e2m1_circuit(Word a, Word b, Word c, Word d) {
  const Word lowest = a & d, highest = a ^ lowest, is_24 = highest & b & c;
  return {lowest, b ^ is_24, c ^ is_24, d ^ is_24, highest};
}

static_assert([] {
  const auto value_of = [](std::uint32_t code, auto circuit) {
    const auto bits = circuit(code & 1, code >> 1 & 1, code >> 2 & 1, code >> 3 & 1);
    std::uint32_t value = 0;
    for (std::size_t n = 0; n < bits.size(); ++n) value |= (bits[n] & 1) << n;
    return static_cast<std::int32_t>(value);
  };
  for (std::size_t i = 0; i < 16; ++i)
    if (value_of(iq4_nl_codes[i], iq4_nl_circuit<std::uint32_t>) != iq4_nl_values[i] + iq4_nl_offset ||
        value_of(e2m1_codes[i], e2m1_circuit<std::uint32_t>) != e2m1_values[i] + e2m1_offset)
      return false;
  return true;
}());

}  // namespace tessera::ops
