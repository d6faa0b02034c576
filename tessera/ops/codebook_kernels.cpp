// SPDX-License-Identifier: Apache-2.0
// Decodes parts of packed weights with a codebook (codebooks.h). The words of a part are:
//
// - the lowest 8 bits of the indices, in one word, or in iq3_xxs and iq3_s in two;
// - IQ2 and IQ3: the signs. Bit 8 j + i belongs to column 4 i + j. In the formats whose files store 7 of 8 signs
//   (iq2_xxs, iq2_xs, iq3_xxs), bit 25 + 2 g is not the last sign of group g, but bit g of 4 other bits: of the
//   factor, or in iq2_xs the ninth bits of the indices.
//
// The 16 bits of factors are, from the lowest bit:
// - iq2_xs: the 4-bit factors of both halves; iq2_s: the same, then two high bits of each index;
// - iq3_s: the ninth bits of the indices, then the 4-bit factor;
// - iq1_s: three high bits of each index, the 3-bit factor, and the sign of the additional 1 / 8;
// - iq1_m: for each index, three high bits and this sign. After those of the 8 parts of a block, there are four numbers
//   with the 3-bit factors of two parts each.
#include "tessera/ops/codebooks.h"
#include "tessera/ops/packed_weight.h"

namespace tessera::ops {

namespace {

using PartWords = std::vector<ir::Value>;

ir::Value shifted_left(ir::Value v, int by) {
  if (by == 0) return v;
  return by > 0 ? v << word_literal(static_cast<std::uint32_t>(by))
                : v >> word_literal(static_cast<std::uint32_t>(-by));
}
ir::Value masked(ir::Value v, std::uint32_t mask) { return v & word_literal(mask); }

bool has_seven_signs(WeightFormat f) {
  return f == WeightFormat::iq2_xxs || f == WeightFormat::iq2_xs || f == WeightFormat::iq3_xxs;
}
bool is_iq1(WeightFormat f) { return f == WeightFormat::iq1_s || f == WeightFormat::iq1_m; }
bool is_iq3(WeightFormat f) { return f == WeightFormat::iq3_xxs || f == WeightFormat::iq3_s; }

/// Computes the last sign of each group of 8, so that the number of negative columns is even.
ir::Value all_signs(ir::Value word) {
  const ir::Value sevens = masked(word, 0x55ffffff);
  ir::Value parity = sevens ^ shifted_left(sevens, -16);
  parity = parity ^ shifted_left(parity, -8);
  parity = parity ^ shifted_left(parity, -1);  // bit 2 g of the result
  return sevens | shifted_left(masked(parity, 0x55), 25);
}
/// Returns the 4 bits that replace the last signs.
ir::Value four_bits(ir::Value word) {
  ir::Value v = masked(shifted_left(word, -25), 0x55);
  v = masked(v | shifted_left(v, -1), 0x33);
  return masked(v | shifted_left(v, -2), 0x0f);
}

/// The packed bits of a part.
struct CodebookBits {
  const PackedWeight& weight;
  const WeightFormat format;
  PartWords words;
  ir::Value factor;

  CodebookBits(const PackedWeight& w, ir::Value part, ir::Value lane) : weight(w), format(w.layout.format) {
    for (int i = 0; i < static_cast<int>(w.layout.bits); ++i) words.push_back(w.word(part, i, lane));
    if (w.layout.factors != 0) factor = w.factor(part, lane);
  }
  /// The index of group `g` of 8 columns, or in the IQ3 formats of 4 columns.
  ir::Value index(int g) const {
    const ir::Value low = masked(shifted_left(words[static_cast<std::size_t>(g / 4)], -8 * (g % 4)), 255);
    switch (format) {
      case WeightFormat::iq2_xs: return low | masked(shifted_left(words[1], -17 - 2 * g), 0x100);
      case WeightFormat::iq2_s: return low | masked(shifted_left(factor, -2 * g), 0x300);
      case WeightFormat::iq3_s: return low | masked(shifted_left(factor, 8 - g), 0x100);
      case WeightFormat::iq1_s: return low | masked(shifted_left(factor, 8 - 3 * g), 0x700);
      case WeightFormat::iq1_m: return low | masked(shifted_left(factor, 8 - 4 * g), 0x700);
      default: return low;
    }
  }
  /// The same for a group that may differ between threads.
  ir::Value index_at(ir::Value g) const {
    const auto by = [](ir::Value v) { return ir::cast(DType::u32, v); };
    ir::Value word = words[0];
    if (is_iq3(format)) word = ir::select(g < 4, words[0], words[1]);
    const ir::Value low = masked(word >> by(g % 4 * 8), 255);
    switch (format) {
      case WeightFormat::iq2_xs: return low | masked(words[1] >> by(g * 2 + 17), 0x100);
      case WeightFormat::iq2_s: return low | masked(factor >> by(g * 2), 0x300);
      case WeightFormat::iq3_s: return low | masked(shifted_left(factor, 8) >> by(g), 0x100);
      case WeightFormat::iq1_s: return low | masked(shifted_left(factor, 8) >> by(g * 3), 0x700);
      case WeightFormat::iq1_m: return low | masked(shifted_left(factor, 8) >> by(g * 4), 0x700);
      default: return low;
    }
  }
  ir::Value entry(ir::Value index) const { return weight.codebook.load(ir::cast(DType::index, index)); }
  ir::Value signs() const { return has_seven_signs(format) ? all_signs(words.back()) : words.back(); }
  /// IQ1: returns 2 if 1 / 8 is added in group g, and 0 if it is subtracted, in each byte of `pattern`.
  ir::Value delta(ir::Value group_bits, std::uint32_t pattern) const {
    return ir::select(group_bits == word_literal(0), word_literal(2 * pattern), word_literal(0));
  }
  ir::Value delta_bits(int g) const {
    return masked(factor, format == WeightFormat::iq1_s ? 0x8000 : std::uint32_t{8} << 4 * g);
  }
};

/// IQ1: 8 times the code, and 0 or 2. The value is this number minus 9, in eighths.
PartWords iq1_numbers(const CodebookBits& b) {
  const auto pair = [&](int g) { return b.entry(b.index(g)) | shifted_left(b.entry(b.index(g + 1)), 4); };
  const ir::Value halves[] = {pair(0), pair(2)};
  PartWords out;
  for (int i = 0; i < 8; ++i)
    out.push_back(masked(shifted_left(halves[i / 4], 3 - 2 * (i % 4)), 0x18181818) |
                  b.delta(b.delta_bits(i / 2), 0x01010101));
  return out;
}
/// IQ2: 64 plus the signed number. Its bits are functions of three bits: whether its magnitude is 25 or 43, and the
/// sign.
PartWords iq2_numbers(const CodebookBits& b) {
  const auto pair = [&](int g) { return b.entry(b.index(g)) | shifted_left(b.entry(b.index(g + 1)), 2); };
  const ir::Value low = pair(0), high = pair(2), sign = b.signs();
  const ir::Value is_25 = masked(low, 0x0f0f0f0f) | shifted_left(masked(high, 0x0f0f0f0f), 4),
                  is_43 = masked(shifted_left(low, -4), 0x0f0f0f0f) | masked(high, 0xf0f0f0f0);
  const ir::Value large = is_25 | is_43, third = sign & large;
  return bytes_of_bits(
      {large, (sign & is_25) | (~sign & is_43), third, ~third, is_25 ^ sign, is_43 ^ sign, ~sign, word_literal(0)});
}
/// IQ3: the signed number plus 64, or plus 15 in iq3_s. Both are negated by an exclusive or: 64 - n = (64 + n) ^ 127 +
/// 1, and 15 - n = (15 + n) ^ 30 for odd n.
PartWords iq3_numbers(const CodebookBits& b) {
  const ir::Value signs = b.signs();
  const bool small = b.format == WeightFormat::iq3_s;
  PartWords out;
  for (int i = 0; i < 8; ++i) {
    const ir::Value entry = b.entry(b.index(i));
    if (small) {
      const ir::Value two = masked(shifted_left(signs, 1 - i), 0x02020202);
      out.push_back(entry ^ (shifted_left(two, 4) - two));
    } else {
      const ir::Value one = masked(shifted_left(signs, -i), 0x01010101);
      out.push_back((entry ^ (shifted_left(one, 7) - one)) + one);
    }
  }
  return out;
}

}  // namespace

std::vector<ir::Value> codebook_numbers(const PackedWeight& weight, ir::Value part, ir::Value lane) {
  const CodebookBits b(weight, part, lane);
  return is_iq1(b.format) ? iq1_numbers(b) : is_iq3(b.format) ? iq3_numbers(b) : iq2_numbers(b);
}

ir::Value codebook_number(const PackedWeight& weight, ir::Value part, ir::Value j, ir::Value lane) {
  const CodebookBits b(weight, part, lane);
  const auto at = [](ir::Value word, ir::Value bit, std::uint32_t mask) {
    return masked(word >> ir::cast(DType::u32, bit), mask);
  };
  const ir::Value group = is_iq3(b.format) ? j / 4 : j / 8, byte = j % 4 * 8, entry = b.entry(b.index_at(group));
  if (is_iq1(b.format)) {
    const ir::Value bits = b.format == WeightFormat::iq1_s ? b.delta_bits(0) : at(b.factor, group * 4 + 3, 1);
    return shifted_left(at(entry, byte + j % 8 / 4 * 2, 3), 3) | b.delta(bits, 1);
  }
  const ir::Value negative = at(b.signs(), byte + j / 4, 1) != word_literal(0);
  if (is_iq3(b.format)) {
    const ir::Value number = at(entry, byte, 255);
    return ir::select(negative, word_literal(b.format == WeightFormat::iq3_s ? 30 : 128) - number, number);
  }
  const ir::Value place = byte + j % 8 / 4, none = word_literal(0);
  const ir::Value magnitude = ir::select(
      at(entry, place, 1) != none, word_literal(iq2_magnitudes[1]),
      ir::select(at(entry, place + 4, 1) != none, word_literal(iq2_magnitudes[2]), word_literal(iq2_magnitudes[0])));
  return ir::select(negative, word_literal(64) - magnitude, word_literal(64) + magnitude);
}

WeightPart codebook_scales(const PackedWeight& weight, ir::Value part, ir::Value lane) {
  const WeightFormat format = weight.layout.format;
  ir::Value scale = weight.scale(part, lane);
  if (weight.layout.unit != 1) scale = scale * weight.layout.unit;
  const auto scaled = [&](ir::Value factor) { return scale * ir::cast(DType::f32, factor * 2 + 1); };
  const auto bits = [](ir::Value v, int first, std::uint32_t mask) { return masked(shifted_left(v, -first), mask); };
  WeightPart out;
  if (weight.layout.factors == 0) {
    out.scale = scaled(four_bits(weight.word(part, static_cast<int>(weight.layout.bits) - 1, lane)));
    return out;
  }
  ir::Value factor = weight.factor(part, lane);
  switch (format) {
    case WeightFormat::iq3_s: out.scale = scaled(bits(factor, 8, 15)); return out;
    case WeightFormat::iq1_s: out.scale = scaled(bits(factor, 12, 7)); return out;
    case WeightFormat::iq1_m:
      factor = weight.paired_factors(part, lane);
      out.scale = scaled(bits(factor, 0, 7)), out.second = scaled(bits(factor, 3, 7));
      return out;
    default: out.scale = scaled(bits(factor, 0, 15)), out.second = scaled(bits(factor, 4, 15)); return out;
  }
}

}  // namespace tessera::ops
