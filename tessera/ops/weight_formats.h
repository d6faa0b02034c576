// SPDX-License-Identifier: Apache-2.0
// The formats of weights, a row of a table each: what packing, products, and the reading of rows go by.
// Inside ops/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/base/dtype.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

/// A block of a file before its row is interleaved with others: at most 256 columns, in parts of 32.
struct UnpackedBlock {
  /// Of each part, as kernels read them. Numbers of 8 bits: word i has columns 4i to 4i + 3, the lowest byte first.
  /// Else four words have the lowest 4 bits of a number, byte j of word i those of columns 4i + j and, above, 16 + 4i +
  /// j. A fifth bit: one word, in which bit 8j + i is column 4i + j. Two more bits: two words, in which bits 8j + 2i
  /// and the next are columns 4i + j of 16. Codes: word i has their bits i as a fifth bit lies.
  std::uint32_t words[8][8];
  std::uint16_t scale, minimum;  ///< f16
  std::uint16_t factors[8];      ///< of each part
};

/// A quantised number q, which is not negative, stands for `scale * (q - offset)`, with a minimum for `scale * q +
/// minimum`. Where parts have integer factors, these multiply the scale and the minimum first.
struct WeightLayout {
  WeightFormat format;
  std::string_view name;
  std::uint32_t columns;       ///< of a block in a file; of one scale as well
  std::uint32_t bytes;         ///< of a block in a file
  DType element = DType::u32;  ///< of what is multiplied as it is; u32: quantised
  std::uint32_t bits = 0;      ///< of a quantised number: 4, 5, 6 or 8; as many words hold 32 of them
  std::int32_t offset = 0;
  bool codes = false;  ///< the 4 bits are a code of iq4_nl (iq4_nl.h)
  bool minimum = false;
  /// Columns with a factor of their own. 32: a byte for the scale and above it one for the minimum, both unsigned; 16:
  /// a signed byte for each half of 32. 0: there are none.
  std::uint32_t factor = 0;
  void (*unpack)(const std::byte* block, UnpackedBlock& out) = nullptr;

  constexpr bool quantised() const { return bits != 0; }
  constexpr bool easily_unpacked() const { return quantised() && factor == 0 && !codes; }
  constexpr std::uint32_t parts() const { return columns / 32; }  ///< of a block
  constexpr std::uint32_t scales() const { return minimum ? 2 : 1; }
};

const WeightLayout& layout_of(WeightFormat format);
/// All of them, in the order of WeightFormat.
std::span<const WeightLayout> weight_layouts();

}  // namespace tessera::ops
