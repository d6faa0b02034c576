// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The table of weight formats, used by packing, products and gathers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/base/dtype.h"
#include "tessera/ops/code_tables.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

/// A block of a file, converted to the words that kernels read, before it is interleaved with other rows. It has at
/// most 256 columns, in parts of 32.
struct UnpackedBlock {
  /// The words of each part, by format:
  /// - 8-bit numbers: word i contains columns 4i to 4i + 3, lowest byte first.
  /// - Lowest 4 bits: four words. Byte j of word i contains column 4i + j in its lower half and column 16 + 4i + j in
  ///   its upper half.
  /// - Fifth bit: one word. Bit 8j + i belongs to column 4i + j.
  /// - Fifth and sixth bit: two words of 16 columns each. Bits 8j + 2i and 8j + 2i + 1 belong to column 4i + j.
  /// - Lowest 2 bits of 2-bit and 3-bit numbers: the same. Third bit: one word, like the fifth bit.
  /// - Codes: word i contains bit i of all codes, in the order of a fifth bit.
  std::uint32_t words[8][8];
  std::uint16_t scale, minimum;  ///< f16, or bf16 in mxfp4
  std::uint16_t factors[12];     ///< one for each part; formats with a codebook: see codebook_kernels.cpp
};

/// A quantised number q is unsigned. Its value is `scale * (q - offset)`, or `scale * q + minimum` in formats with a
/// minimum. If parts have integer factors, scale and minimum are multiplied by them first.
struct WeightLayout {
  WeightFormat format;
  std::string_view name;
  std::uint32_t columns;       ///< columns of a block in a file; a block has one scale
  std::uint32_t bytes;         ///< bytes of a block in a file
  DType element = DType::u32;  ///< dtype of unquantised weights; u32 means quantised
  /// Bits of a quantised number, 2 to 6 or 8, which equals the number of words for 32 numbers. With a codebook: the
  /// number of words.
  std::uint32_t bits = 0;
  std::int32_t offset = 0;
  Codes codes = Codes::none;  ///< the 4 bits are a code instead of a number
  bool minimum = false;
  /// The number of columns per factor:
  /// - 32: the low byte is the factor of the scale, which is signed in formats without a minimum. The high byte is the
  ///   factor of the minimum.
  /// - 16: one byte for each half of 32 columns: signed, or with a minimum, 4 bits for the scale and then 4 for the
  ///   minimum.
  /// - 0: there are no factors.
  /// Formats with a codebook have factors 2 n + 1, and n is stored as described in codebook_kernels.cpp.
  std::uint32_t factor = 0;
  std::uint32_t factors = 0;   ///< 16-bit numbers of a block that contain factors, stored separately from the words
  bool codebook = false;       ///< words contain indices into a codebook (codebooks.h)
  float unit = 1;              ///< with a codebook: scales are multiplied by this number
  std::uint32_t scale_at = 0;  ///< offset of the scale in a block of a file; a minimum follows it
  /// The dtype of packed scales. bf16: in a file, the scale is one byte, its exponent.
  DType scale = DType::f16;
  void (*unpack)(const std::byte* block, UnpackedBlock& out) = nullptr;

  constexpr bool quantised() const { return bits != 0; }
  constexpr bool easily_unpacked() const { return quantised() && factor == 0 && codes == Codes::none; }
  constexpr std::uint32_t parts() const { return columns / 32; }  ///< parts of a block
  constexpr std::uint32_t scales() const { return minimum ? 2 : 1; }
  constexpr bool has_two_minimums() const { return minimum && factor == 16; }  ///< one for each half of a part
  /// Scales and minimums of a part of 32 columns, after they were multiplied by the factors.
  constexpr std::uint32_t part_scales() const { return scales() * (factor == 16 ? 2 : 1); }
};

const WeightLayout& layout_of(WeightFormat format);
/// Returns all layouts, in the order of WeightFormat.
std::span<const WeightLayout> weight_layouts();

}  // namespace tessera::ops
