// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The table of iq4_nl as a boolean circuit, which replaces byte lookups. Four words contain one bit
// each of 32 codes. The bits of the values are computed from them with bitwise operations.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/ops/weight_blocks.h"

namespace tessera::ops {

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

static_assert([] {
  for (std::size_t i = 0; i < 16; ++i) {
    const auto bit = [&](int n) { return static_cast<std::uint32_t>(iq4_nl_codes[i] >> n & 1); };
    const auto bits = iq4_nl_circuit(bit(0), bit(1), bit(2), bit(3));
    std::uint32_t value = 0;
    for (std::size_t n = 0; n < 8; ++n) value |= (bits[n] & 1) << n;
    if (static_cast<std::int32_t>(value) != iq4_nl_values[i] + iq4_nl_offset) return false;
  }
  return true;
}());

}  // namespace tessera::ops
