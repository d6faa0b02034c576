// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The table of weight formats, used by packing, products and gathers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/base/dtype.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

/// A block of a file before it is interleaved with other rows: at most 256 columns, in parts of 32.
struct UnpackedBlock {
  /// The words of each part, as kernels read them. 8-bit numbers: word i has columns 4i to 4i + 3, lowest byte first.
  /// Others: the lowest 4 bits are in four words; byte j of word i has column 4i + j in its lower and 16 + 4i + j in
  /// its upper half. A fifth bit is in one word, bit 8j + i for column 4i + j. Two more bits are in two words of 16
  /// columns each, bits 8j + 2i and 8j + 2i + 1 for column 4i + j. Codes: word i has their bits i, in the order of a
  /// fifth bit.
  std::uint32_t words[8][8];
  std::uint16_t scale, minimum;  ///< f16
  std::uint16_t factors[8];      ///< one for each part
};

/// A quantised number q, which is unsigned, has the value `scale * (q - offset)`, or with a minimum `scale * q +
/// minimum`. If parts have integer factors, scale and minimum are first multiplied by them.
struct WeightLayout {
  WeightFormat format;
  std::string_view name;
  std::uint32_t columns;       ///< of a block in a file, which has one scale
  std::uint32_t bytes;         ///< of a block in a file
  DType element = DType::u32;  ///< dtype of unquantised weights; u32: quantised
  std::uint32_t bits = 0;      ///< bits of a quantised number: 4, 5, 6 or 8; also the number of words for 32 of them
  std::int32_t offset = 0;
  bool codes = false;  ///< the 4 bits are a code of iq4_nl (iq4_nl.h)
  bool minimum = false;
  /// Number of columns per factor. 32: the low byte is the factor of the scale and the high byte that of the minimum,
  /// both unsigned. 16: one signed byte for each half of 32 columns. 0: no factors.
  std::uint32_t factor = 0;
  void (*unpack)(const std::byte* block, UnpackedBlock& out) = nullptr;

  constexpr bool quantised() const { return bits != 0; }
  constexpr bool easily_unpacked() const { return quantised() && factor == 0 && !codes; }
  constexpr std::uint32_t parts() const { return columns / 32; }  ///< of a block
  constexpr std::uint32_t scales() const { return minimum ? 2 : 1; }
};

const WeightLayout& layout_of(WeightFormat format);
/// All layouts, in the order of WeightFormat.
std::span<const WeightLayout> weight_layouts();

}  // namespace tessera::ops
