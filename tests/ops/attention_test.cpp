// SPDX-License-Identifier: Apache-2.0
// Attention over whole sequences: results compared with the plain formula, and memory use. (Gradients: grad_test.cpp.)
#include "tessera/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/array/functions.h"
#include "tessera/grad/grad.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;

constexpr double infinity = std::numeric_limits<double>::infinity();
const Device reference{Backend::cpu, 0};

/// Plain attention that stores all scores.
Array plain(const Array& q, Array k, Array v, const AttentionOptions& o) {
  const std::int64_t group = q.shape(1) / k.shape(1);
  const auto repeated = [&](const Array& a) {
    return a.unsqueeze(2)
        .broadcast_to({a.shape(0), a.shape(1), group, a.shape(2), a.shape(3)})
        .reshape({a.shape(0), a.shape(1) * group, a.shape(2), a.shape(3)});
  };
  k = repeated(k), v = repeated(v);
  Array scores = matmul(q, k.permute({0, 1, 3, 2})) * o.scale.value_or(1 / std::sqrt(double(q.shape(3))));
  if (o.mask && o.mask->dtype() == DType::boolean)
    scores = where(*o.mask, scores, -infinity);
  else if (o.mask)
    scores = scores + *o.mask;
  if (o.causal) {
    const auto place = [&](std::int64_t n) { return Array::arange(n, 0, 1, DType::i32, q.device()); };
    scores = where(place(q.shape(2)).unsqueeze(1) >= place(k.shape(2)), scores, -infinity);
  }
  return matmul(softmax(scores), v);
}

struct Sizes {
  std::int64_t batch, heads, key_heads, queries, keys, size, value_size;
};

class Attends : public OnEveryDevice {
 protected:
  Array made(Shape s) { return Array::from(numbers(element_count(s)), s); }
  void check(const Sizes& s, DType t, AttentionOptions options, double bound) {
    // Views of (batch, tokens, heads, size). The rows of k are part of longer rows, which matrix units cannot read.
    const auto view = [&](std::int64_t heads, std::int64_t tokens, std::int64_t size, std::int64_t more) {
      const Array x = made({s.batch, tokens, heads, size + more}).astype(t);
      return x.slice(3, 0, size).permute({0, 2, 1, 3});
    };
    const Array q = view(s.heads, s.queries, s.size, 0), k = view(s.key_heads, s.keys, s.size, 1),
                v = view(s.key_heads, s.keys, s.value_size, 0), g = view(s.heads, s.queries, s.value_size, 0);
    const DType wide = t == DType::f64 ? DType::f64 : DType::f32;
    const auto [got, got_back] =
        pullback([&](const std::vector<Array>& x) { return scaled_dot_product_attention(x[0], x[1], x[2], options); },
                 std::vector{q, k, v});
    const auto expected_from = [&](const Array& a) { return a.astype(wide).to(reference); };
    if (options.mask) options.mask = options.mask->to(reference);
    const auto [want, want_back] =
        pullback([&](const std::vector<Array>& x) { return plain(x[0], x[1], x[2], options); },
                 std::vector{expected_from(q), expected_from(k), expected_from(v)});
    EXPECT_EQ(got.dtype(), t);
    const auto near = [&](const Array& a, const Array& b, const char* what) {
      ASSERT_EQ(a.shape(), b.shape()) << what;
      const double largest = max(abs(b)).astype(DType::f32).item<float>();
      EXPECT_LE(max(abs(expected_from(a) - b)).astype(DType::f32).item<float>(), bound * std::max(largest, 1.0))
          << what << " of " << to_string(q.shape()) << " and " << to_string(k.shape());
    };
    near(got, want, "the result");
    const auto a = got_back(g), b = want_back(expected_from(g));
    near(a[0], b[0], "the adjoint of q"), near(a[1], b[1], "of k"), near(a[2], b[2], "of v");
    EXPECT_EQ(a[1].dtype(), t);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Attends, ::testing::ValuesIn(testing::all_devices()), [](const auto& info) {
  return std::string(backend_name(info.param.backend)) + std::to_string(info.param.index);
});

TEST_P(Attends, MatchesThePlainFormula) {
  for (const Sizes& s : {Sizes{2, 3, 3, 7, 7, 8, 8},
                         {1, 4, 2, 5, 9, 16, 3},
                         {2, 6, 1, 9, 4, 4, 5},
                         {1, 1, 1, 1, 1, 1, 1},
                         {1, 2, 2, 70, 130, 33, 17}})
    for (const bool causal : {false, true}) check(s, DType::f32, {.causal = causal}, 2e-5);
}

TEST_P(Attends, WorksInEveryDtype) {
  const Sizes s{2, 4, 2, 9, 9, 8, 8};
  check(s, DType::f16, {.causal = true}, 4e-3);
  check(s, DType::bf16, {.causal = true}, 3e-2);
  if (device_info(GetParam()).can.f64) check(s, DType::f64, {.causal = true}, 1e-12);
}

// Sizes of matrix units: several tiles of queries and keys, some of them partly empty.
TEST_P(Attends, MatchesThePlainFormulaInTilesOfMatrixUnits) {
  for (const Sizes& s : {Sizes{1, 4, 1, 70, 150, 32, 32},
                         {2, 2, 2, 150, 40, 16, 16},
                         {1, 4, 2, 130, 130, 48, 48},
                         {1, 1, 1, 70, 70, 128, 128}})
    for (const bool causal : {false, true}) {
      check(s, DType::f16, {.causal = causal}, 1e-3);
      check(s, DType::bf16, {.causal = causal}, 8e-3);
    }
}

TEST_P(Attends, AppliesMasks) {
  const Sizes s{2, 4, 2, 5, 6, 8, 3};
  check(s, DType::f32, {.mask = Array::arange(6, 0, 1, DType::i32) < 4}, 2e-5);
  check(s, DType::f32, {.mask = made({2, 1, 5, 6}) > -1.5, .scale = 0.3}, 2e-5);
  check(s, DType::f32, {.causal = true, .mask = made({4, 5, 6})}, 2e-5);
  check(s, DType::f32, {.mask = made({2, 4, 1, 1})}, 2e-5);
  // A query that attends to no key.
  const Array sees = Array::arange(3, 0, 1, DType::i32).unsqueeze(1) != 1;
  const Array x = made({1, 1, 3, 4});
  const auto [y, back] =
      pullback([&](const Array& a) { return scaled_dot_product_attention(a, a, a, {.mask = sees}); }, x);
  for (const float v : y.select(2, 1).to_vector<float>()) EXPECT_EQ(v, 0);
  const Array gradient = back(Array::ones({1, 1, 3, 4}));
  for (const float v : gradient.to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
}

TEST_P(Attends, MatchesThePlainFormulaInSeveralBlocks) {
  check({1, 2, 1, 70, 4200, 2, 2}, DType::f32, {.causal = false}, 1e-4);
}

TEST_P(Attends, AcceptsEmptyInputs) {
  const auto shape = [](Shape q, Shape k) {
    return scaled_dot_product_attention(Array::ones(q), Array::ones(k), Array::ones(k)).shape();
  };
  EXPECT_EQ(shape({0, 2, 3, 4}, {0, 2, 3, 4}), (Shape{0, 2, 3, 4}));
  EXPECT_EQ(shape({1, 2, 0, 4}, {1, 2, 3, 4}), (Shape{1, 2, 0, 4}));
  const Array none =
      scaled_dot_product_attention(Array::ones({1, 1, 2, 3}), Array::ones({1, 1, 0, 3}), Array::ones({1, 1, 0, 3}));
  EXPECT_EQ(none.to_vector<float>(), std::vector<float>(6, 0));
}

TEST_P(Attends, RejectsMismatchedShapesAndDtypes) {
  const Array x = Array::ones({1, 2, 3, 4});
  const auto refused = [&](const Array& q, const Array& k, const Array& v,
                           std::initializer_list<std::string_view> parts, AttentionOptions o = {}) {
    expect_throw<ShapeError>([&] { scaled_dot_product_attention(q, k, v, o); }, parts);
  };
  refused(x.select(0, 0), x, x, {"scaled_dot_product_attention", "(2, 3, 4)", "batch, heads"});
  refused(x, Array::ones({2, 2, 3, 4}), x, {"batches"});
  refused(x, Array::ones({1, 2, 3, 5}), x, {"sizes"});
  refused(x, Array::ones({1, 2, 4, 4}), x, {"heads or tokens"});
  refused(x, Array::ones({1, 3, 3, 4}), Array::ones({1, 3, 3, 4}), {"multiple"});
  refused(x, x, x, {"mask", "(2, 2)", "broadcast"}, {.mask = Array::ones({2, 2})});
  expect_throw<DtypeError>([&] { scaled_dot_product_attention(x, x.astype(DType::f16), x); }, {"f16", "astype"});
  expect_throw<DtypeError>([&] { scaled_dot_product_attention(x, x, x, {.mask = Array::ones({3}, DType::i32)}); },
                           {"i32", "dtype bool or a float dtype"});
  expect_throw<ArgumentError>(
      [&] { grad([&](const Array& m) { return sum(scaled_dot_product_attention(x, x, x, {.mask = m})); })(x); },
      {"scaled_dot_product_attention"});
  auto first = grad([&](const Array& q) {
    const Array y = scaled_dot_product_attention(q, x, x);
    return sum(y * y);
  });
  expect_throw<ArgumentError>([&] { grad([&](const Array& q) { return sum(first(q)); })(x); },
                              {"scaled_dot_product_attention", "second derivatives are not supported"});
}

TEST(Attention, DoesNotStoreScores) {
  const Device cpu{Backend::cpu, 0};
  const DeviceScope scope(cpu);
  const Array x = Array::ones({1, 4, 4096, 16});
  const std::uint64_t scores = 4ull * 4096 * 4096 * 4;
  const auto f = [](const Array& a) { return sum(scaled_dot_product_attention(a, a, a, {.causal = true})); };
  trim(cpu);
  reset_peak_memory(cpu);
  const std::uint64_t before = memory_stats(cpu).live_bytes;
  static_cast<void>(grad(f)(x));
  EXPECT_LT(memory_stats(cpu).peak_bytes - before, scores / 2)
      << "storing all scores in their four forms would take eight times as much";
}

TEST_P(Attends, RotaryAcceptsBatches) {
  const Array x = made({2, 3, 4, 6});
  const Rotary how{.pairs = RotaryPairs::halves, .dimensions = 4};
  const Array got = rotary(x, 5, how);
  for (std::int64_t b = 0; b < 2; ++b)
    EXPECT_EQ(got.select(0, b).permute({1, 0, 2}).to_vector<float>(),
              rotary(x.select(0, b).permute({1, 0, 2}), 5, how).to_vector<float>());
  EXPECT_EQ(rotary(x.permute({1, 0, 2, 3}), 5, how).to_vector<float>(), got.permute({1, 0, 2, 3}).to_vector<float>());
}

}  // namespace
}  // namespace tessera
