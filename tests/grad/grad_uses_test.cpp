// SPDX-License-Identifier: Apache-2.0
// Uses of gradients: structures, nesting, errors, cost, and a network that learns.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "tessera/array/dlpack.h"
#include "tessera/array/functions.h"
#include "tessera/array/history.h"
#include "tessera/grad/grad.h"
#include "tessera/ops/convolution.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

float number(const Array& a) { return a.item<float>(); }
Array scalar(double v) { return Array::full({}, v); }

struct Floats3 {
  Array x, low, high;
};
struct Layer {
  Array weight, bias;
  std::int64_t size = 3;
};
struct Model {
  std::vector<Layer> layers;
  std::optional<Array> scale;
  Array steps = Array::full({2}, 7, DType::i32);
};

TEST_P(OnEveryDevice, GradientHasTheTypeOfTheArgument) {
  const Model model{{{Array::from({2.f, 3.f}), Array::from({1.f, 1.f})}}, Array::from({5.f})};
  const auto f = [](const Model& m, const Array& x) {
    return std::tuple(sum(m.layers[0].weight * x + m.layers[0].bias), *m.scale, m.layers[0].weight * 2);
  };
  const auto [value, gradient] = value_and_grad(f)(model, Array::from({10.f, 20.f}));
  EXPECT_EQ(number(std::get<0>(value)), 82);
  EXPECT_FALSE(std::get<0>(value).has_history() || std::get<1>(value).has_history() ||
               std::get<2>(value).has_history());
  EXPECT_EQ(gradient.layers[0].weight.to_vector<float>(), (Floats{10, 20}));
  EXPECT_EQ(gradient.layers[0].bias.to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(gradient.scale->to_vector<float>(), (Floats{0})) << "the value does not depend on it";
  EXPECT_EQ(gradient.steps.size(), 0);
  EXPECT_EQ(gradient.layers[0].size, 3);
}

TEST_P(OnEveryDevice, WrtSelectsTheArguments) {
  const auto f = [](const Array& a, const Array& b, const Array& c) { return sum(a * b * c); };
  const Array a = scalar(2), b = scalar(3), c = scalar(5);
  const auto [value, both] = value_and_grad(f, wrt<0, 2>)(a, b, c);
  EXPECT_EQ(number(value), 30);
  EXPECT_EQ(number(std::get<0>(both)), 15);
  EXPECT_EQ(number(std::get<1>(both)), 6);
  EXPECT_EQ(number(grad(f, wrt<1>)(a, b, c)), 10);
  const auto swapped = grad(f, wrt<2, 0>)(a, b, c);
  EXPECT_EQ(number(std::get<0>(swapped)), 6);
  EXPECT_EQ(number(std::get<1>(swapped)), 15);
}

TEST_P(OnEveryDevice, PullbackCanBeCalledRepeatedly) {
  const auto [y, back] = pullback([](const Array& x) { return x * x; }, Array::from({1.f, 2.f}));
  EXPECT_FALSE(y.has_history());
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 4}));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(back(Array::from({1.f, 10.f})).to_vector<float>(), (Floats{2, 40}));
  expect_throw<ShapeError>([&, &b = back] { b(Array::ones({3})); }, {"pullback", "(3,)", "(2,)"});
  expect_throw<DtypeError>([&, &b = back] { b(Array::ones({2}, DType::f16)); }, {"f16"});
}

TEST_P(OnEveryDevice, GradientsCanBeNested) {
  const Array x0 = scalar(3), y0 = scalar(4);
  EXPECT_EQ(number(grad([&](const Array& x) { return grad([&](const Array& y) { return x * y; })(y0); })(x0)), 1);
  EXPECT_EQ(number(grad([&](const Array& x) { return grad([&](const Array& y) { return y * y * x; })(x); })(x0)), 12);
  // A value that does not depend on the argument of the outer function is constant there.
  EXPECT_EQ(number(grad([&](const Array& x) { return x * grad([](const Array& y) { return y * y; })(y0); })(x0)), 8);
  // This is also true for the value of the inner function.
  const auto f = [&](const Array& x) {
    const auto [value, slope] = value_and_grad([&](const Array& y) { return x * y * y; })(y0);
    return value + slope;
  };
  EXPECT_EQ(number(grad(f)(x0)), 24);
  // The third derivative of x^5.
  auto once = grad([](const Array& x) { return x * x * x * x * x; });
  auto twice = grad([&](const Array& x) { return once(x); });
  EXPECT_EQ(number(grad([&](const Array& x) { return twice(x); })(x0)), 540);
  EXPECT_EQ(number(grad([&](const Array& x) { return stop_gradient(x * x) * x; })(x0)), 9);
}

TEST_P(OnEveryDevice, TiesAndKinksMatchPyTorch) {
  const auto of = [](auto f, Floats at) { return grad([&](const Array& x) { return sum(f(x)); })(Array::from(at)); };
  EXPECT_EQ(of([](const Array& x) { return max(x); }, {1, 3, 3, 3, 2, 3}).template to_vector<float>(),
            (Floats{0, 0.25f, 0.25f, 0.25f, 0, 0.25f}));
  EXPECT_EQ(of([](const Array& x) { return maximum(x, 2); }, {1, 2, 3}).template to_vector<float>(),
            (Floats{0, 0.5f, 1}));
  EXPECT_EQ(of([](const Array& x) { return minimum(x, x * 1); }, {1, 2, 3}).template to_vector<float>(),
            (Floats{1, 1, 1}));
  EXPECT_EQ(of([](const Array& x) { return relu(x); }, {-1, 0, 2}).template to_vector<float>(), (Floats{0, 0, 1}));
  EXPECT_EQ(of([](const Array& x) { return abs(x); }, {-1, 0, 2}).template to_vector<float>(), (Floats{-1, 0, 1}));
  EXPECT_EQ(of([](const Array& x) { return floor(x); }, {0.5f, 1.5f}).template to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(of([](const Array& x) { return sign(x) + x; }, {-1, 0, 2}).template to_vector<float>(), (Floats{1, 1, 1}));
  // The expected values are from torch.clamp 2.15. If x equals a numeric bound, the gradient is zero.
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(of([](const Array& x) { return clip(x, -1, 2); }, {-2, -1, 0, 2, 3, nan}).template to_vector<float>(),
            (Floats{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(of([](const Array& x) { return clip(x, 1, 1); }, {0, 1, 2}).template to_vector<float>(), (Floats{0, 0, 0}));
  // x is below, equal to, between and above array bounds. Some bounds are equal, and some cross.
  const auto bounds = grad([](const Floats3& b) { return sum(clip(b.x, b.low, b.high)); })(
      Floats3{Array::from({-2.f, -1.f, 0.f, 1.f, 2.f, 0.f, 1.f, 2.f, 0.f, 1.f, 2.f, 3.f, nan, 0.f}),
              Array::from({-1.f, -1.f, -1.f, -1.f, -1.f, 1.f, 1.f, 1.f, 2.f, 2.f, 2.f, 2.f, -1.f, nan}),
              Array::from({1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f})});
  EXPECT_EQ(bounds.x.to_vector<float>(), (Floats{0, 0.5f, 1, 0.5f, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(bounds.low.to_vector<float>(), (Floats{1, 0.5f, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(bounds.high.to_vector<float>(), (Floats{0, 0, 0, 0.5f, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(of([](const Array& x) { return sqrt(x); }, {0}).template to_vector<float>(), (Floats{infinity}));
  EXPECT_EQ(of([](const Array& x) { return atan2(x, x * 0); }, {0}).template to_vector<float>(), (Floats{0}));
  EXPECT_EQ(of(
                [](const Array& x) {
                  return pow(x, Array::from({0.f, 1.f, 2.f, 0.5f}));
                },
                {0, 0, 0, 0})
                .template to_vector<float>(),
            (Floats{0, 1, 0, infinity}));
  EXPECT_EQ(of(
                [](const Array& x) {
                  return sort(x) * Array::from({1.f, 2.f, 3.f});
                },
                {2, 2, 1})
                .template to_vector<float>(),
            (Floats{2, 3, 1}));
  // PyTorch returns NaN here. hypot is the root of a sum of squares; its gradient at 0 is 0, as for all norms.
  EXPECT_EQ(of([](const Array& x) { return hypot(x, x * 1); }, {0}).template to_vector<float>(), (Floats{0}));
  EXPECT_EQ(of([](const Array& x) { return tessera::std(x); }, {3, 3, 3}).template to_vector<float>(),
            (Floats{0, 0, 0}))
      << "without variation";
  // If several elements are the largest, the first one gets the gradient.
  EXPECT_EQ(of(
                [](const Array& x) {
                  return max_pool2d(x.reshape({1, 1, 2, 3}), {.kernel = 2, .stride = 1});
                },
                {1, 4, 4, 4, 4, 4})
                .template to_vector<float>(),
            (Floats{0, 2, 0, 0, 0, 0}));
  // Points far from 0, where parts of the formula are infinite.
  EXPECT_EQ(of([](const Array& x) { return sigmoid(x); }, {-200, 200}).template to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(of([](const Array& x) { return silu(x); }, {-200, 200}).template to_vector<float>(), (Floats{0, 1}));
  EXPECT_EQ(of([](const Array& x) { return gelu(x); }, {-200, 200}).template to_vector<float>(), (Floats{0, 1}));
}

TEST_P(OnEveryDevice, Handles16BitFloatsAndIntegers) {
  for (const DType t : {DType::f16, DType::bf16}) {
    const Array x = Array::from({1.f, 2.f}).astype(t);
    const Array g = grad([](const Array& v) { return sum(v * v.astype(DType::f32)); })(x);
    EXPECT_EQ(g.dtype(), t);
    EXPECT_EQ(g.astype(DType::f32).to_vector<float>(), (Floats{2, 4}));
    const Array s = grad([](const Array& v) { return sum(tanh(exp(v * 0.5) - 1)); })(x);
    EXPECT_EQ(s.dtype(), t);
  }
  const Array n = Array::from({std::int32_t{3}, std::int32_t{4}});
  EXPECT_EQ(grad([&](const Array& x) { return sum(x * n); })(Array::from({1.f, 1.f})).to_vector<float>(),
            (Floats{3, 4}));
  EXPECT_EQ(
      number(grad([](const Array& x) { return sum(x.astype(DType::i32).astype(DType::f32)) + sum(x); })(scalar(1))), 1);
}

// Short rows are kept in registers on GPUs, by one to 32 elements per thread. Long rows are read twice.
TEST_P(OnEveryDevice, GradientsOfRowsOfAnyLengthMatchTheirFormulas) {
  std::vector<std::int64_t> lengths = {1, 16, 17, 64, 65, 1000, 1025, 3000, 8192, 9000};
  if (compiles_slowly()) lengths = {1, 17, 1025, 9000};
  for (const std::int64_t n : lengths) {
    SCOPED_TRACE(n);
    const Array x = Array::from(numbers(2 * n), Shape{2, n}), g = Array::from(numbers(2 * n), Shape{2, n});
    const Array weight = Array::from(numbers(n, 0.5f, 2));
    const auto near = [&](const Array& got, const Array& want) {
      const double most = max(abs(want)).item<float>();  // with one element, the terms cancel
      EXPECT_LE(max(abs(got - want)).item<float>(), 2e-5 * most + 1e-6 / static_cast<double>(n));
    };
    const Array y = softmax(x), r = rsqrt(mean(x * x, {1}, true) + 1e-3f);
    near(grad([&](const Array& a) { return sum(softmax(a) * g); })(x), y * (g - sum(g * y, {1}, true)));
    near(grad([&](const Array& a) { return sum(rms_norm(a, weight, 1e-3f) * g); })(x),
         r * (g * weight - x * r * r * mean(g * weight * x, {1}, true)));
  }
}

TEST_P(OnEveryDevice, OperationsThatWouldDropAGradientThrow) {
  const Array other = Array::ones({2, 2});
  const auto in = [&](auto f) {
    return [=] {
      grad([&](const Array& x) {
        f(x * 2);
        return sum(x);
      })(Array::ones({2, 2}));
    };
  };
  const auto refused = [&](auto f, std::initializer_list<std::string_view> parts) {
    expect_throw<ArgumentError>(in(f), parts);
  };
  refused([](Array x) { x += 1; }, {"[+=]", "x = x + y"});
  refused([](Array x) { x *= x; }, {"[*=]"});
  refused([](Array x) { x.fill(1); }, {"[fill]"});
  refused([&](Array x) { x.assign(other); }, {"[assign]"});
  refused([&](const Array& x) { other.copy().assign(x); }, {"[assign]", "lose", "concatenate"});
  refused(
      [&](const Array& x) {
        Array sum = other.copy();
        sum += x;
      },
      {"[+=]", "lose"});
  refused([&](const Array& x) { assign_all({{other.copy(), x}, {other.copy(), other}}); }, {"[assign_all]", "lose"});
  refused([&](const Array& x) { assign_all({{other.copy(), other}, {x, other}}); }, {"[assign_all]", "x = x + y"});
  refused([](const Array& x) { x.view(); }, {"[view]", "stop_gradient"});
  refused([](const Array& x) { x.view_for_writing(); }, {"[view_for_writing]"});
  refused([](const Array& x) { kernel_argument(x, ir::Access::read); }, {"[launch]", "stop_gradient"});
  refused(
      [](const Array& x) {
        Array cache = Array::zeros({1, 4, 2});
        cache_store(cache, x.reshape({2, 1, 2}), 0);
      },
      {"[cache_store]"});
  refused(
      [](const Array& x) {
        attention(x.reshape({2, 1, 2}), Array::ones({1, 4, 2}), Array::ones({1, 4, 2}), 0, 1);
      },
      {"[attention]", "no gradient"});
  if (GetParam().backend == Backend::cpu) {
    refused([](const Array& x) { x.host_access(); }, {"[host_access]"});
    refused([](const Array& x) { dlpack::to_dlpack(x); }, {"[to_dlpack]"});
  }
  // These operations drop no gradient.
  EXPECT_NO_THROW(in([](const Array& x) {
    EXPECT_EQ(x.to_vector<float>()[0], 2);
    static_cast<void>(to_string(x) + std::to_string(x.eval().pending()));
    stop_gradient(x).view();
    Array mine = stop_gradient(x);
    mine += 1;
    static_cast<void>(argmax(x));
  })());
}

TEST_P(OnEveryDevice, WritingMemoryThatAGradientNeedsThrows) {
  const Array kept = Array::ones({3});
  const auto write_with = [&](auto write) {
    return [&, write] {
      grad([&](const Array& x) {
        const Array other = sum(x * kept), y = matmul(x, kept.unsqueeze(1)) + other;
        Array target = kept;
        write(target);
        return sum(y);
      })(Array::ones({2, 3}));
    };
  };
  expect_throw<ArgumentError>(write_with([](Array& a) { a += 1; }), {"gradient of matmul", "+=", "in place"});
  expect_throw<ArgumentError>(write_with([](Array& a) { a.fill(2); }), {"gradient of matmul", "fill"});
  expect_throw<ArgumentError>(
      [&] {
        grad([&](const Array& x) {
          const Array w = kept.copy(), y = matmul(x, w.unsqueeze(1));
          Array target = w;
          target.assign(Array::zeros({3}));
          return sum(y);
        })(Array::ones({2, 3}));
      },
      {"gradient of matmul", "assign"});
  // The rule of a sum keeps no operands.
  EXPECT_NO_THROW(grad([&](const Array& x) {
    Array w = kept.copy();
    const Array y = x + w;
    y.eval();
    w += 1;
    return sum(y);
  })(Array::ones({3})));
}

TEST_P(OnEveryDevice, RejectsFunctionsWithoutAScalarFloatResult) {
  expect_throw<ShapeError>([] { grad([](const Array& x) { return x * 2; })(Array::ones({2, 3})); }, {"(2, 3)", "sum"});
  expect_throw<DtypeError>([] { grad([](const Array& x) { return sum(x > 0); })(Array::ones({2})); },
                           {"i64", "astype"});
  EXPECT_EQ(grad([](const Array&) { return scalar(1); })(Array::ones({2})).to_vector<float>(), (Floats{0, 0}));
}

TEST_P(OnEveryDevice, FirstOrderBackwardRecordsNoStepsAndFreesHistory) {
  std::weak_ptr<detail::Step> inside;
  std::uint64_t before_walk = 0;
  const auto f = [&](const Array& x) {
    const Array h = relu(matmul(x, x) + x);
    const Array y = sum(softmax(silu(h) / 3) * max(h, {1}, true));
    inside = h.step();
    before_walk = detail::Step::made();
    return y;
  };
  const auto [value, g] = value_and_grad(f)(Array::ones({4, 4}));
  EXPECT_EQ(detail::Step::made(), before_walk);
  EXPECT_TRUE(inside.expired());
  EXPECT_FALSE(value.has_history() || g.has_history());
  // No history is recorded outside a differentiated function.
  static_cast<void>(f(Array::ones({4, 4})));
  EXPECT_EQ(detail::Step::made(), before_walk);
}

TEST_P(OnEveryDevice, ElementwiseChainTakesOneKernelForwardAndOneBackward) {
  const Array x = Array::full({64, 64}, 0.5).eval(), y = Array::full({64, 64}, 0.3).eval();
  const auto f = [](const std::vector<Array>& v) {
    Array h = v[0] * v[1] + v[0];
    return sum(tanh(std::move(h)) * 2);
  };
  auto both = value_and_grad(f);
  static_cast<void>(both(std::vector{x, y}));
  const std::uint64_t before = fused_launches();
  const auto [value, g] = both(std::vector{x, y});
  const std::uint64_t launches = fused_launches() - before;
  constexpr std::uint64_t of_sum = 2;  // one for the parts and one to add them
  EXPECT_LE(launches, of_sum + 1) << "one kernel writes both gradients";
  EXPECT_FALSE(g[0].pending() || g[1].pending());
}

TEST(Grad, LongHistoriesAreFreedWithoutRecursion) {
  const DeviceScope cpu({Backend::cpu, 0});
  constexpr int steps = 100000;
  const auto f = [](const Array& x) {
    Array y = x;
    for (int i = 0; i < steps; ++i) y = y + 1;
    return sum(y);
  };
  EXPECT_EQ(number(grad(f)(Array::ones({1}))), 1);
  // The history is dropped without a backward pass.
  static_cast<void>(pullback(f, Array::ones({1})));
}

TEST_P(OnEveryDevice, TwoLayerNetworkLearns) {
  struct Net {
    Array w1, b1, w2, b2;
  };
  std::uniform_real_distribution<float> d(-1, 1);
  const auto make = [&](Shape s, float size) {
    Floats v(static_cast<std::size_t>(element_count(s)));
    for (float& x : v) x = d(random) * size;
    return Array::from(v, s);
  };
  Net net{make({2, 16}, 1), make({16}, 1), make({16, 1}, 0.5f), make({1}, 0.1f)};
  const Array x = make({64, 2}, 1);
  const Array y = (x.slice(1, 0, 1) * x.slice(1, 1, 2)).eval();
  auto step = value_and_grad([&](const Net& n) {
    const Array h = tanh(matmul(x, n.w1, {.bias = n.b1}));
    const Array error = matmul(h, n.w2, {.bias = n.b2}) - y;
    return mean(error * error);
  });
  float first = 0, last = 0;
  const int rounds = GetParam().backend == Backend::interp ? 100 : 200;
  for (int i = 0; i < rounds; ++i) {
    const auto [loss, g] = step(net);
    last = number(loss);
    if (i == 0) first = last;
    for (const auto& [p, dp] : {std::pair{&net.w1, g.w1}, {&net.b1, g.b1}, {&net.w2, g.w2}, {&net.b2, g.b2}})
      *p -= 0.05 * dp;
  }
  EXPECT_LT(last, first * 0.7f) << "from " << first << " to " << last;
}

}  // namespace
}  // namespace tessera
