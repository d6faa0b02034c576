// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/array/history.h"
#include "tessera/ops/catalogue/check.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

enum class Mask { none, causal, seen, added };

struct AttentionCase {
  std::int64_t batch, heads, key_heads, queries, keys, size, value_size;
  DType dtype = DType::f32;
  Mask mask = Mask::none;
  Shape q_shape() const { return {batch, heads, queries, size}; }
  Shape k_shape() const { return {batch, key_heads, keys, size}; }
  Shape v_shape() const { return {batch, key_heads, keys, value_size}; }
  Shape out_shape() const { return {batch, heads, queries, value_size}; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
};

/// Values of an array of four dimensions.
struct Values {
  Shape shape;
  std::vector<double> values;
  explicit Values(Shape s) : shape(std::move(s)), values(static_cast<std::size_t>(element_count(shape))) {}
  Values(Shape s, std::vector<double> v) : shape(std::move(s)), values(std::move(v)) {}
  const double* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return values.data() + ((b * shape[1] + h) * shape[2] + i) * shape[3];
  }
  double* row(std::int64_t b, std::int64_t h, std::int64_t i) {
    return values.data() + ((b * shape[1] + h) * shape[2] + i) * shape[3];
  }
  Array on(Device device, DType t) const { return array_of(values, shape, t, device); }
};

double dot(const double* a, const double* b, std::int64_t n) { return std::inner_product(a, a + n, b, 0.0); }
void add_multiple(double* to, double by, const double* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += by * from[i];
}

/// Calls `use(b, h, i, weights)` with the attention weights of each query.
template <class F>
void for_each_query(const AttentionCase& c, const Values& q, const Values& k, const std::vector<double>& mask,
                    F&& use) {
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> weights(static_cast<std::size_t>(c.keys));
        double top = -1e300, sum = 0;
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const double m = mask.empty() ? 1 : mask[static_cast<std::size_t>(i * c.keys + j)];
          double& s = weights[static_cast<std::size_t>(j)];
          s = dot(q.row(b, h, i), k.row(b, h / (c.heads / c.key_heads), j), c.size) * c.scale();
          if (c.mask == Mask::added) s += m;
          if ((c.mask == Mask::causal && j > i) || (c.mask == Mask::seen && m == 0)) s = -INFINITY;
          top = std::max(top, s);
        }
        for (double& s : weights) sum += s = std::exp(s - top);
        for (double& s : weights) s = sum > 0 ? s / sum : 0;
        use(b, h, i, weights);
      }
}

double check_scaled_attention(const AttentionCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto numbers = [&](const Shape& s, double most) {
    return Values(s, rounded(random.numbers(element_count(s), -most, most), c.dtype));
  };
  const Values q = numbers(c.q_shape(), 2), k = numbers(c.k_shape(), 2), v = numbers(c.v_shape(), 1);
  const Shape m_shape = {c.queries, c.keys};
  // The first query attends to no key.
  std::vector<double> mask(static_cast<std::size_t>(element_count(m_shape)));
  for (std::size_t i = 0; i < mask.size(); ++i)
    mask[i] = c.mask == Mask::added  ? random.integer(-8, 8) / 4.0
              : c.mask == Mask::seen ? double(static_cast<std::int64_t>(i) >= c.keys && random.integer(0, 2) > 0)
                                     : 1;
  Values wanted(c.out_shape());
  for_each_query(c, q, k, mask,
                 [&](std::int64_t b, std::int64_t h, std::int64_t i, const std::vector<double>& weights) {
                   for (std::int64_t j = 0; j < c.keys; ++j)
                     add_multiple(wanted.row(b, h, i), weights[static_cast<std::size_t>(j)],
                                  v.row(b, h / (c.heads / c.key_heads), j), c.value_size);
                 });
  const Array queries = q.on(device, c.dtype), keys = k.on(device, c.dtype), values = v.on(device, c.dtype);
  AttentionOptions options{.causal = c.mask == Mask::causal};
  if (c.mask == Mask::seen) options.mask = array_of(mask, m_shape, DType::boolean, device);
  if (c.mask == Mask::added) options.mask = array_of(mask, m_shape, c.dtype, device);
  // The result is a weighted mean of values up to 1. Its error is caused by the scores, which are sums of `size`
  // products up to 4. Matrix units round the weights to the dtype of the values.
  const bool rounds = (c.mask == Mask::none || c.mask == Mask::causal) && c.size == c.value_size &&
                      choose_attention_tile(tiles_of(device), c.dtype, c.dtype, c.size, c.queries).has_value();
  return worst(poisoned(device, wanted.values.size() * dtype_size(c.dtype),
                        [&] { return scaled_dot_product_attention(queries, keys, values, options); }),
               wanted.values, 2e-6 + unit(c.dtype) * 1.01, 1.5e-6 + half_step(c.dtype) + (rounds ? unit(c.dtype) : 0));
}

/// The largest magnitudes of the operands and of the adjoint.
struct Magnitudes {
  double q = 2, k = 2, v = 1, g = 1;
};

double check_attention_gradient(const AttentionCase& c, const Magnitudes& most, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto numbers = [&](const Shape& s, double m) {
    return Values(s, rounded(random.numbers(element_count(s), -m, m), c.dtype));
  };
  const Values q = numbers(c.q_shape(), most.q), k = numbers(c.k_shape(), most.k), v = numbers(c.v_shape(), most.v),
               g = numbers(c.out_shape(), most.g);
  std::vector<Values> wanted = {Values(c.q_shape()), Values(c.k_shape()), Values(c.v_shape())};
  for_each_query(c, q, k, {}, [&](std::int64_t b, std::int64_t h, std::int64_t i, const std::vector<double>& weights) {
    const std::int64_t key_head = h / (c.heads / c.key_heads);
    std::vector<double> slopes(weights.size());
    double along = 0;
    for (std::size_t j = 0; j < weights.size(); ++j) {
      slopes[j] = dot(g.row(b, h, i), v.row(b, key_head, static_cast<std::int64_t>(j)), c.value_size);
      along += weights[j] * slopes[j];
    }
    for (std::size_t j = 0; j < weights.size(); ++j) {
      const auto key = static_cast<std::int64_t>(j);
      const double slope = weights[j] * (slopes[j] - along) * c.scale();
      add_multiple(wanted[0].row(b, h, i), slope, k.row(b, key_head, key), c.size);
      add_multiple(wanted[1].row(b, key_head, key), slope, q.row(b, h, i), c.size);
      add_multiple(wanted[2].row(b, key_head, key), weights[j], g.row(b, h, i), c.value_size);
    }
  });
  std::vector<Array> operands;
  const std::uint64_t leaf = detail::Step::next_number();
  for (const Values* x : {&q, &k, &v}) {
    operands.push_back(x->on(device, c.dtype));
    operands.back().set_step(detail::Step::leaf(operands.back(), leaf, c.dtype));
  }
  const Array y =
      scaled_dot_product_attention(operands[0], operands[1], operands[2], {.causal = c.mask == Mask::causal});
  Backward backward(y.step(), g.on(device, c.dtype), leaf, {true, true, true, false});
  y.step()->rule().backward(backward);
  // Weights and their slopes are rounded to the dtype, and so is the result, which determines the slopes.
  double error = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    double largest = 0;
    for (const double x : wanted[i].values) largest = std::max(largest, std::abs(x));
    error = std::max(error, worst(values_of(*backward.adjoints()[i]), wanted[i].values, 0,
                                  (2e-5 + 2 * unit(c.dtype)) * largest + half_step(c.dtype)));
  }
  return error;
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
  const auto add_gradient = [&](const AttentionCase& c, Magnitudes most = {}) {
    checks.push_back(
        {"scaled_dot_product_attention gradient",
         to_string(c.q_shape()) + " over " + std::to_string(c.key_heads) + " heads of " + std::to_string(c.keys) + " " +
             std::string(dtype_name(c.dtype)) + text(c.mask) +
             (most.g == 1 ? "" : " q to " + std::to_string(most.q) + ", adjoint to " + std::to_string(most.g)),
         [=](Device d, std::uint64_t seed) { return check_attention_gradient(c, most, d, seed); }});
  };
  add_gradient({2, 4, 2, 7, 9, 16, 5, DType::f32, Mask::causal});
  // Whole tiles of matrix units: several tiles of queries and keys, groups of heads.
  add_gradient({1, 4, 1, 70, 70, 64, 64, DType::f16, Mask::causal});
  add_gradient({2, 2, 2, 37, 130, 32, 32, DType::bf16, Mask::none});
  add_gradient({1, 2, 2, 150, 33, 128, 128, DType::f16, Mask::causal});
  // Slopes that would be subnormal in f16, and slopes that would overflow.
  add_gradient({1, 2, 1, 70, 90, 16, 16, DType::f16, Mask::none}, {0.03125, 128, 1, 0x1p-12});
  add_gradient({1, 2, 1, 70, 90, 16, 16, DType::f16, Mask::none}, {128, 0.03125, 1, 0x1p-12});
  add_gradient({1, 1, 1, 70, 70, 16, 16, DType::f16, Mask::causal}, {0.25, 0.25, 256, 1024});
}

}  // namespace tessera::ops
