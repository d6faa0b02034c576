// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Reads packed weights in kernels, and multiplies a part of a row by the same part of several tokens.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

inline ir::Value word_literal(std::uint32_t bits) { return ir::literal(DType::u32, bits); }

/// The sums of one thread in a product: one row times `tokens` tokens, over the thread's slice of the columns.
struct Sums {
  std::vector<ir::Variable> of;
  explicit Sums(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) of.emplace_back(DType::f32, 0.0f);
  }
  void add(std::size_t i, ir::Value a, ir::Value b) { of[i].set(ir::fma(a, b, of[i].get())); }
};

/// Transposes 8 x 32 bits. Word i of the argument contains bit i of 32 numbers. Bit 8 j + k becomes byte j of word k of
/// the result (Warren, Hacker's Delight, 7-3).
inline std::vector<ir::Value> bytes_of_bits(const std::array<ir::Value, 8>& bits) {
  std::vector<ir::Value> w(bits.begin(), bits.end());
  for (const auto& [step, low] : {std::pair(std::size_t{4}, 0x0f0f0f0fu), {2, 0x33333333u}, {1, 0x55555555u}}) {
    const ir::Value shift = word_literal(static_cast<std::uint32_t>(step)), keep = word_literal(low),
                    other = word_literal(~low);
    for (std::size_t i = 0; i < 8; ++i) {
      if (i & step) continue;
      const ir::Value a = w[i], b = w[i + step];
      w[i] = (a & keep) | ((b << shift) & other);
      w[i + step] = ((a >> shift) & keep) | (b & other);
    }
  }
  return w;
}

/// The bits of 32 values, lowest first, from the bits of their codes.
inline std::array<ir::Value, 8> value_bits(Codes codes, ir::Value a, ir::Value b, ir::Value c, ir::Value d) {
  if (codes == Codes::iq4_nl) return iq4_nl_circuit(a, b, c, d);
  const std::array<ir::Value, 5> five = e2m1_circuit(a, b, c, d);
  const ir::Value zero = word_literal(0);
  return {five[0], five[1], five[2], five[3], five[4], zero, zero, zero};
}

/// The buffers of a packed weight, as kernel parameters in the order of `Weight::parts`.
struct PackedWeight {
  const WeightLayout& layout;
  int group;  ///< number of interleaved rows
  ir::BufferRef words, scales, factors;

  explicit PackedWeight(const WeightSpec& spec) : layout(layout_of(spec.format)), group(static_cast<int>(spec.group)) {
    words = ir::buffer_param("weights", layout.element, ir::Access::read);
    if (layout.quantised()) scales = ir::buffer_param("scales", spec.scale, ir::Access::read);
    if (layout.factor != 0) factors = ir::buffer_param("factors", DType::u16, ir::Access::read);
  }

  ir::Value element(ir::Value index, ir::Value lane) const { return load_at(words, index * group + lane, {}); }
  // `part` is the index of a part of 32 columns, counted over all groups.
  ir::Value word(ir::Value part, ir::Operand i, ir::Value lane) const {
    return words.load((part * static_cast<int>(layout.bits) + i) * group + lane);
  }
  ir::Value scale(ir::Value part, ir::Value lane, int which = 0) const {
    const ir::Value block = layout.parts() == 1 ? part : part / static_cast<int>(layout.parts());
    return load_at(scales, (block * static_cast<int>(layout.scales()) + which) * group + lane, {});
  }
  ir::Value factor(ir::Value part, ir::Value lane) const {
    return ir::cast(DType::u32, factors.load(part * group + lane));
  }

  /// Returns the 32 numbers of a part, in the order of x, as eight words of four unsigned bytes.
  std::vector<ir::Value> numbers(ir::Value part, ir::Value lane) const {
    std::vector<ir::Value> w;
    for (int i = 0; i < static_cast<int>(layout.bits); ++i) w.push_back(word(part, i, lane));
    if (layout.bits == 8) return w;
    if (layout.codes != Codes::none) return bytes_of_bits(value_bits(layout.codes, w[0], w[1], w[2], w[3]));
    std::vector<ir::Value> out;
    const auto shifted = [](ir::Value v, int left) {
      if (left == 0) return v;
      return left > 0 ? v << word_literal(static_cast<std::uint32_t>(left))
                      : v >> word_literal(static_cast<std::uint32_t>(-left));
    };
    if (layout.bits <= 3) {
      for (int i = 0; i < 8; ++i) {
        const ir::Value low = shifted(w[static_cast<std::size_t>(i / 4)], -2 * (i % 4)) & word_literal(0x03030303);
        out.push_back(layout.bits == 2 ? low : low | (shifted(w[2], 2 - i) & word_literal(0x04040404)));
      }
      return out;
    }
    const ir::Value low = word_literal(0x0f0f0f0f);
    for (std::size_t i = 0; i < 8; ++i) out.push_back(i < 4 ? w[i] & low : (w[i - 4] >> word_literal(4)) & low);
    for (int i = 0; i < 8; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (layout.bits == 5) out[at] = out[at] | (shifted(w[4], 4 - i) & word_literal(0x10101010));
      if (layout.bits == 6) out[at] = out[at] | (shifted(w[4 + at / 4], 4 - 2 * (i % 4)) & word_literal(0x30303030));
    }
    return out;
  }
  /// Returns number `j` of a part. `j` may differ between threads.
  ir::Value number(ir::Value part, ir::Value j, ir::Value lane) const {
    const auto bits_of = [&](ir::Value from, ir::Value shift, std::uint32_t mask) {
      return (from >> ir::cast(DType::u32, shift)) & word_literal(mask);
    };
    const ir::Value byte = j % 4 * 8;
    if (layout.codes != Codes::none) {
      const auto bit = [&](int i) {
        return word(part, ir::index_literal(i), lane) >> ir::cast(DType::u32, byte + j / 4);
      };
      const auto bits = value_bits(layout.codes, bit(0), bit(1), bit(2), bit(3));
      ir::Value out = bits[0] & word_literal(1);
      for (std::uint32_t i = 1; i < 8; ++i) out = out | (bits[i] & word_literal(1)) << word_literal(i);
      return out;
    }
    if (layout.bits == 8) return bits_of(word(part, j / 4, lane), byte, 255);
    if (layout.bits <= 3) {
      const ir::Value pair = bits_of(word(part, j / 16, lane), byte + j / 4 % 4 * 2, 3);
      if (layout.bits == 2) return pair;
      return pair | bits_of(word(part, ir::index_literal(2), lane), byte + j / 4, 1) << 2;
    }
    const ir::Value low = bits_of(word(part, j % 16 / 4, lane), byte + j / 16 * 4, 15);
    if (layout.bits == 5) return low | bits_of(word(part, ir::index_literal(4), lane), byte + j / 4, 1) << 4;
    if (layout.bits == 6) return low | bits_of(word(part, j / 16 + 4, lane), byte + j / 4 % 4 * 2, 3) << 4;
    return low;
  }
};

/// A part of a row: 32 numbers in the order of x, as eight words of four unsigned bytes, with their scale and minimum.
/// In formats with one factor per 16 columns, they have a second scale, and a second minimum if there are minimums, for
/// the second half.
struct WeightPart {
  std::vector<ir::Value> words;
  ir::Value scale, second, minimum, second_minimum;
  /// The scales, followed by the minimums.
  std::vector<ir::Value*> numbers(const WeightLayout& f) {
    std::vector<ir::Value*> out = {&scale};
    if (f.factor == 16) out.push_back(&second);
    if (f.minimum) out.push_back(&minimum);
    if (f.has_two_minimums()) out.push_back(&second_minimum);
    return out;
  }
};
/// Multiplies scale and minimum by their factors, if the format has them.
WeightPart scaled_part(const WeightLayout& f, std::vector<ir::Value> words, ir::Value scale, ir::Value minimum,
                       ir::Value factor);
WeightPart part_of(const PackedWeight& weight, ir::Value part, ir::Value lane);

/// Multiplies a part of a row of the weight by the same part of each token and adds the products to `sums`, starting
/// with sum `first`. The words of the tokens begin at `x_at`.
void add_part(const WeightSpec& weight, const WeightPart& w, const ir::BufferRef& x, const std::vector<ir::Value>& x_at,
              Sums& sums, std::size_t first = 0);

}  // namespace tessera::ops
