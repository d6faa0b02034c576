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

/// The buffers of a packed weight, as kernel parameters in the order of `Weight::parts`.
struct PackedWeight {
  const WeightLayout& layout;
  int group;  ///< number of interleaved rows
  ir::BufferRef words, scales, factors, codebook;

  explicit PackedWeight(const WeightSpec& spec) : layout(layout_of(spec.format)), group(static_cast<int>(spec.group)) {
    words = ir::buffer_param("weights", layout.element, ir::Access::read);
    if (layout.quantised()) scales = ir::buffer_param("scales", spec.scale, ir::Access::read);
    if (layout.factors != 0) factors = ir::buffer_param("factors", DType::u16, ir::Access::read);
    if (layout.codebook) codebook = ir::buffer_param("codebook", DType::u32, ir::Access::read);
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
    if (layout.factors == layout.parts()) return ir::cast(DType::u32, factors.load(part * group + lane));
    const int parts = static_cast<int>(layout.parts());
    return factor_of_block(part, part % parts, lane);
  }
  /// iq1_m: the bits of the two 3-bit factors of a part.
  ir::Value paired_factors(ir::Value part, ir::Value lane) const {
    const int parts = static_cast<int>(layout.parts());
    return factor_of_block(part, part % parts / 2 + parts, lane) >> ir::cast(DType::u32, part % 2 * 6);
  }

  /// Returns the 32 numbers of a part, in the order of x, as eight words of four unsigned bytes.
  std::vector<ir::Value> numbers(ir::Value part, ir::Value lane) const;
  /// Returns number `j` of a part. `j` may differ between threads.
  ir::Value number(ir::Value part, ir::Value j, ir::Value lane) const;

 private:
  ir::Value factor_of_block(ir::Value part, ir::Value which, ir::Value lane) const {
    const int parts = static_cast<int>(layout.parts()), all = static_cast<int>(layout.factors);
    return ir::cast(DType::u32, factors.load((part / parts * all + which) * group + lane));
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
/// The scales and minimums of a part, without its words.
WeightPart scales_of(const PackedWeight& weight, ir::Value part, ir::Value lane);
WeightPart part_of(const PackedWeight& weight, ir::Value part, ir::Value lane);
// The same for formats with a codebook, in codebook_kernels.cpp.
std::vector<ir::Value> codebook_numbers(const PackedWeight& weight, ir::Value part, ir::Value lane);
ir::Value codebook_number(const PackedWeight& weight, ir::Value part, ir::Value j, ir::Value lane);
WeightPart codebook_scales(const PackedWeight& weight, ir::Value part, ir::Value lane);

/// Multiplies a part of a row of the weight by the same part of each token and adds the products to `sums`, starting
/// with sum `first`. The words of the tokens begin at `x_at`.
void add_part(const WeightSpec& weight, const WeightPart& w, const ir::BufferRef& x, const std::vector<ir::Value>& x_at,
              Sums& sums, std::size_t first = 0);

}  // namespace tessera::ops
