// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "tessera/ops/catalogue/check.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

enum class Mask { none, causal, seen, added };

struct AttentionCase {
  std::int64_t batch, heads, key_heads, queries, keys, size, value_size;
  DType dtype = DType::f32;
  Mask mask = Mask::none;
};

double check_scaled_attention(const AttentionCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const Shape q_shape = {c.batch, c.heads, c.queries, c.size}, k_shape = {c.batch, c.key_heads, c.keys, c.size},
              v_shape = {c.batch, c.key_heads, c.keys, c.value_size}, m_shape = {c.queries, c.keys};
  const auto q = rounded(random.numbers(element_count(q_shape), -2, 2), c.dtype),
             k = rounded(random.numbers(element_count(k_shape), -2, 2), c.dtype),
             v = rounded(random.numbers(element_count(v_shape)), c.dtype);
  // The first query attends to no key.
  std::vector<double> mask(static_cast<std::size_t>(element_count(m_shape)));
  for (std::size_t i = 0; i < mask.size(); ++i)
    mask[i] = c.mask == Mask::added  ? random.integer(-8, 8) / 4.0
              : c.mask == Mask::seen ? double(static_cast<std::int64_t>(i) >= c.keys && random.integer(0, 2) > 0)
                                     : 1;
  const double scale = 1 / std::sqrt(static_cast<double>(c.size));
  const auto at = [](const std::vector<double>& values, const Shape& s, std::int64_t b, std::int64_t h,
                     std::int64_t row, std::int64_t e) {
    return values[static_cast<std::size_t>(((b * s[1] + h) * s[2] + row) * s[3] + e)];
  };
  std::vector<double> wanted;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.queries; ++i) {
        const std::int64_t of = h / (c.heads / c.key_heads);
        std::vector<double> scores(static_cast<std::size_t>(c.keys)), out(static_cast<std::size_t>(c.value_size));
        double top = -1e300, sum = 0;
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const double m = mask[static_cast<std::size_t>(i * c.keys + j)];
          double& s = scores[static_cast<std::size_t>(j)];
          for (std::int64_t e = 0; e < c.size; ++e) s += at(q, q_shape, b, h, i, e) * at(k, k_shape, b, of, j, e);
          s = s * scale + (c.mask == Mask::added ? m : 0);
          if ((c.mask == Mask::causal && j > i) || (c.mask == Mask::seen && m == 0)) s = -INFINITY;
          top = std::max(top, s);
        }
        for (double& s : scores) sum += s = std::exp(s - top);
        for (std::int64_t j = 0; j < c.keys && sum > 0; ++j)
          for (std::size_t e = 0; e < out.size(); ++e)
            out[e] +=
                scores[static_cast<std::size_t>(j)] / sum * at(v, v_shape, b, of, j, static_cast<std::int64_t>(e));
        wanted.insert(wanted.end(), out.begin(), out.end());
      }
  const Array keys = array_of(k, k_shape, c.dtype, device), values = array_of(v, v_shape, c.dtype, device),
              queries = array_of(q, q_shape, c.dtype, device);
  AttentionOptions options{.causal = c.mask == Mask::causal};
  if (c.mask == Mask::seen) options.mask = array_of(mask, m_shape, DType::boolean, device);
  if (c.mask == Mask::added) options.mask = array_of(mask, m_shape, c.dtype, device);
  // The result is a weighted mean of values up to 1. Its error is caused by the scores, which are sums of `size`
  // products up to 4. Matrix units round the weights to the dtype of the values.
  const bool rounds = (c.mask == Mask::none || c.mask == Mask::causal) && c.size == c.value_size &&
                      choose_attention_tile(tiles_of(device), c.dtype, c.dtype, c.size, c.queries).has_value();
  return worst(poisoned(device, wanted.size() * dtype_size(c.dtype),
                        [&] { return scaled_dot_product_attention(queries, keys, values, options); }),
               wanted, 2e-6 + unit(c.dtype) * 1.01, 1.5e-6 + half_step(c.dtype) + (rounds ? unit(c.dtype) : 0));
}

}  // namespace

void add_attention_checks(Checks& checks) {
  const auto text = [](Mask m) {
    return m == Mask::none ? "" : m == Mask::causal ? " causal" : m == Mask::seen ? " masked" : " with a mask added";
  };
  std::vector<AttentionCase> cases;
  for (const Mask m : {Mask::none, Mask::causal, Mask::seen, Mask::added}) {
    cases.push_back({2, 4, 2, 7, 9, 16, 5, DType::f32, m});
    cases.push_back({1, 2, 2, 70, 130, 33, 17, DType::f32, m});
  }
  for (const DType t : {DType::f16, DType::bf16, DType::f64}) cases.push_back({1, 2, 1, 9, 9, 8, 8, t, Mask::causal});
  // Whole tiles of matrix units.
  cases.push_back({1, 4, 2, 70, 70, 64, 64, DType::f16, Mask::causal});
  cases.push_back({2, 2, 1, 37, 130, 32, 32, DType::bf16, Mask::none});
  cases.push_back({1, 1, 1, 90, 33, 128, 128, DType::f16, Mask::causal});
  cases.push_back({1, 1, 1, 1, 1, 1, 1});
  cases.push_back({0, 2, 1, 3, 3, 4, 4});
  for (const AttentionCase& c : cases)
    checks.push_back({"scaled_dot_product_attention",
                      to_string(Shape{c.batch, c.heads, c.queries, c.size}) + " over " + std::to_string(c.key_heads) +
                          " heads of " + std::to_string(c.keys) + " " + std::string(dtype_name(c.dtype)) + text(c.mask),
                      [=](Device device, std::uint64_t seed) { return check_scaled_attention(c, device, seed); }});
}

}  // namespace tessera::ops
