// SPDX-License-Identifier: Apache-2.0
// The table of iq4_nl as a circuit: no kernel looks a byte up, but four words hold a bit each of 32 numbers, and the
// bits of what these stand for are functions of them. Inside ops/ only.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/ops/weight_blocks.h"

namespace tessera::ops {

/// What is added to iq4_nl_values, so that they are bytes without sign.
inline constexpr std::int32_t iq4_nl_offset = 132;

/// The code of each of the table's numbers: of all orders, offsets and signs that were tried (a search that swaps two
/// codes as long as that helps), one whose circuit is smallest: 12 operations of up to three operands.
inline constexpr std::array<std::uint8_t, 16> iq4_nl_codes = {10, 14, 8, 9, 11, 5, 13, 15, 2, 0, 6, 12, 4, 1, 3, 7};

/// Of codes, given by their bits, the bits of the values plus the offset, the lowest first; of many codes at once in
/// the bits of a word.
template <class Word>
constexpr std::array<Word, 8> iq4_nl_circuit(Word a, Word b, Word c, Word d) {  // a: the lowest bit
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
