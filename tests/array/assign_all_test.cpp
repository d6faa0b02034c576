// SPDX-License-Identifier: Apache-2.0
// Computing and writing several arrays in one kernel: the values, the number of kernels, and memory that is both read
// and written.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/array/array.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

/// Returns the number of kernels that `f` launches for expressions.
template <class F>
std::uint64_t launches(F&& f) {
  const std::uint64_t before = fused_launches();
  f();
  return fused_launches() - before;
}

Array some(Shape shape, float from = 0) {
  return Array::arange(element_count(shape), from).reshape(std::move(shape)).eval();
}

TEST_P(OnEveryDevice, ArraysOfTheSameShapeShareAKernel) {
  const Array x = some({5, 7}), y = some({5, 7}, 3);
  const Array common = x * y, a = common + 1, b = common - 1, c = x > y, alone = y * 2;
  EXPECT_EQ(launches([&] { eval({a, b, c, alone}); }), 1u);
  for (const Array& each : {a, b, c, common, alone}) EXPECT_FALSE(each.pending());
  for (std::size_t i = 0; i < 35; ++i) {
    const float u = static_cast<float>(i), v = u + 3;
    ASSERT_EQ(a.to_vector<float>()[i], u * v + 1);
    ASSERT_EQ(b.to_vector<float>()[i], u * v - 1);
    ASSERT_EQ(alone.to_vector<float>()[i], v * 2);
  }
  EXPECT_EQ(c.to_vector<bool>(), std::vector<bool>(35, false));
}

TEST_P(OnEveryDevice, DependentArraysShareAKernelInAnyOrder) {
  for (const bool below_first : {true, false}) {
    const Array x = some({9});
    const Array low = x + 1, high = low * 2, higher = high - x;
    const auto count = launches([&] { below_first ? eval({low, high, higher}) : eval({higher, high, low}); });
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(low.to_vector<float>(), (x + 1).to_vector<float>());
    EXPECT_EQ(high.to_vector<float>(), ((x + 1) * 2).to_vector<float>());
    EXPECT_EQ(higher.to_vector<float>(), (x + 2).to_vector<float>());
  }
}

TEST_P(OnEveryDevice, DifferentShapesUseSeparateKernels) {
  const Array x = some({4, 3}), y = some({3});
  const Array a = x + 1, b = y + 1, c = x + 2, d = y + 2, none = Array::ones({0}) + 1;
  const Array computed = some({4, 3});
  EXPECT_EQ(launches([&] { eval({a, b, computed, none, c, d}); }), 2u);
  EXPECT_EQ(launches([&] { eval({a, b, c, d}); }), 0u);
  EXPECT_EQ(launches([&] { eval(std::span<const Array>()); }), 0u);
  EXPECT_EQ(b.to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(d.to_vector<float>(), (Floats{2, 3, 4}));
  EXPECT_EQ(c.to_vector<float>(), (x + 2).to_vector<float>());
}

TEST_P(OnEveryDevice, ViewsOfAPendingArrayAreComputedOnce) {
  const Array x = some({4, 3}), a = x + 1;
  EXPECT_EQ(launches([&] { eval({a, a, a.reshape({12})}); }), 1u);
}

TEST_P(OnEveryDevice, EvalOfManyArraysRespectsTheKernelLimits) {
  const Array x = some({33});
  std::vector<Array> all;
  for (int i = 0; i < 400; ++i) all.push_back(x * (i + 1) + i);
  const auto count = launches([&] { eval(all); });
  EXPECT_GT(count, 1u);  // 256 operations each
  EXPECT_LT(count, 40u);
  for (int i = 0; i < 400; ++i) {
    const auto values = all[static_cast<std::size_t>(i)].to_vector<float>();
    for (int k = 0; k < 33; ++k) ASSERT_EQ(values[static_cast<std::size_t>(k)], static_cast<float>(k * (i + 1) + i));
  }
}

TEST_P(OnEveryDevice, AdamStepUsesOneKernel) {
  Array p = some({6, 5}), m = Array::zeros({6, 5}), v = Array::zeros({6, 5});
  const Array gradient = some({6, 5}, -10);
  const auto p0 = p.to_vector<float>(), g = gradient.to_vector<float>();
  EXPECT_EQ(launches([&] {
              Array m1 = 0.9 * m + 0.1 * gradient;
              Array v1 = 0.99 * v + 0.01 * (gradient * gradient);
              Array p1 = p - 0.5 * m1 / (sqrt(v1) + 1e-8);
              assign_all({{p, std::move(p1)}, {m, std::move(m1)}, {v, std::move(v1)}});
            }),
            1u);
  for (std::size_t i = 0; i < p0.size(); ++i) {
    const float m1 = 0.1f * g[i], v1 = 0.01f * (g[i] * g[i]);
    ASSERT_NEAR(m.to_vector<float>()[i], m1, 1e-6);
    ASSERT_NEAR(v.to_vector<float>()[i], v1, 1e-5);
    ASSERT_NEAR(p.to_vector<float>()[i], p0[i] - 0.5f * m1 / (std::sqrt(v1) + 1e-8f), 1e-5);
  }
}

TEST_P(OnEveryDevice, AssignAllReadsTheOldContents) {
  Array a = some({4}), b = some({4}, 10);
  assign_all({{a, b}, {b, a}});
  EXPECT_EQ(a.to_vector<float>(), (Floats{10, 11, 12, 13}));
  EXPECT_EQ(b.to_vector<float>(), (Floats{0, 1, 2, 3}));

  Array c = some({2}, 5);  // a different shape, so a different kernel
  Array sum_of = a.slice(0, 0, 2) + c;
  assign_all({{a, b * 2}, {c, std::move(sum_of)}});
  EXPECT_EQ(a.to_vector<float>(), (Floats{0, 2, 4, 6}));
  EXPECT_EQ(c.to_vector<float>(), (Floats{15, 17}));

  Array reversed = some({3, 3});  // read in a different order than written
  Array turned = reversed.transpose() + 0;
  assign_all({{reversed, std::move(turned)}});
  EXPECT_EQ(reversed.to_vector<float>(), (Floats{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  assign_all({{reversed, reversed.transpose()}});
  EXPECT_EQ(reversed.to_vector<float>(), (Floats{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_P(OnEveryDevice, AssignAllEvaluatesPendingReadersFirst) {
  Array a = some({4}), b = some({4}, 10);
  const Array waiting = a + b;
  Array value = b * 2;
  const Array held = value;
  assign_all({{a, value}, {b, waiting}});
  EXPECT_EQ(a.to_vector<float>(), (Floats{20, 22, 24, 26}));
  EXPECT_EQ(b.to_vector<float>(), (Floats{10, 12, 14, 16}));
  EXPECT_EQ(waiting.to_vector<float>(), (Floats{10, 12, 14, 16}));
  EXPECT_EQ(held.to_vector<float>(), (Floats{20, 22, 24, 26}));
}

TEST_P(OnEveryDevice, AssignAllAcceptsTargetsInTheSameStorage) {
  const Array all = some({12});  // like adjacent parameters of a group
  Array p = all.slice(0, 0, 6), q = all.slice(0, 6, 12);
  EXPECT_EQ(launches([&] {
              Array x = p + q, y = p - q;
              assign_all({{p, std::move(x)}, {q, std::move(y)}});
            }),
            1u);
  EXPECT_EQ(all.to_vector<float>(), (Floats{6, 8, 10, 12, 14, 16, -6, -6, -6, -6, -6, -6}));

  const Array grid = some({3, 2});  // interleaved, so written one after the other
  Array x = grid.slice(1, 1, 2) * 10, y = grid.slice(1, 0, 1) * 10;
  assign_all({{grid.slice(1, 0, 1), std::move(x)}, {grid.slice(1, 1, 2), std::move(y)}});
  EXPECT_EQ(grid.to_vector<float>(), (Floats{10, 0, 30, 20, 50, 40}));

  Array one = some({3});  // the later assignment wins
  assign_all({{one, one + 1}, {one.slice(0, 0, 2), Array::zeros({1})}, {one, one * 3}});
  EXPECT_EQ(one.to_vector<float>(), (Floats{0, 3, 6}));
}

TEST_P(OnEveryDevice, AssignAllConvertsValuesToTheTargetDtype) {
  Array counts = Array::zeros({3}, DType::i32), bits = Array::zeros({3}, DType::boolean), x = some({3});
  EXPECT_EQ(launches([&] { assign_all({{counts, x + 1}, {bits, x > 0}, {x, x * 0.5}}); }), 1u);
  EXPECT_EQ(counts.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(bits.to_vector<bool>(), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 0.5f, 1}));
  assign_all({{x, Array::full({1}, 4)}});  // broadcast
  EXPECT_EQ(x.to_vector<float>(), (Floats{4, 4, 4}));
  Array pending = some({3}) + 1;
  assign_all({{pending, pending * 2}, {Array::ones({0}), Array::ones({0})}});
  EXPECT_EQ(pending.to_vector<float>(), (Floats{2, 4, 6}));
  assign_all(std::span<Assignment>());
}

TEST_P(OnEveryDevice, AssignAllRejectsInvalidAssignments) {
  Array a = some({2, 3});
  expect_throw<Error>([&] { assign_all({{a, Array::ones({4})}}); }, {"broadcast"});
  EXPECT_EQ(text_of<Error>([] {
              assign_all({{Array::ones({1}).broadcast_to({3}), Array::ones({3})}});
            }),
            text_of<Error>([] { Array::ones({1}).broadcast_to({3}).assign(Array::ones({3})); }));
  if (a.device() != Device{Backend::interp, 0}) {
    expect_throw<Error>(
        [&] {
          assign_all({{a, Array::ones({2, 3}, DType::f32, Device{Backend::interp, 0})}});
        },
        {"different devices"});
  }
  EXPECT_EQ(a.to_vector<float>(), some({2, 3}).to_vector<float>());
}

}  // namespace
}  // namespace tessera
