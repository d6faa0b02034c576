// SPDX-License-Identifier: Apache-2.0
// Custom gradients, kernels with gradients, and recomputation.
#include "tessera/grad/custom.h"

#include <gtest/gtest.h>

#include "tessera/array/functions.h"
#include "tessera/nn/attention.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/trainer.h"
#include "tessera/ops/product.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

const auto cube = custom(
    "cube", [](const Array& x) { return x * x * x; },
    [](const Array& g, const Array&, const Array& x) { return g * 3 * x * x; });

TEST_P(OnEveryDevice, UsesACustomGradient) {
  const Array x = Array::from({1.f, 2.f});
  EXPECT_EQ(grad([](const Array& a) { return sum(cube(a)); })(x).to_vector<float>(), (Floats{3, 12}));
  auto first = grad([](const Array& a) { return sum(cube(a)); });
  EXPECT_EQ(grad([&](const Array& a) { return sum(first(a)); })(x).to_vector<float>(), (Floats{6, 12}));
  const auto straight = custom(
      "round", [](const Array& a, const Array&) { return rint(a); },
      [](const Array& g, const Array&, const Array&, const Array&) { return std::tuple(g, Array::zeros({0})); });
  const auto [of_a, of_b] =
      grad([&](const Array& a, const Array& b) { return sum(straight(a, b) * a); }, wrt<0, 1>)(x * 1.3, x);
  EXPECT_EQ(of_b.to_vector<float>(), (Floats{0, 0}));
  EXPECT_NEAR(of_a.to_vector<float>()[1], 3 + 2.6f, 1e-5);
  EXPECT_FALSE(cube(x).has_history());
}

TEST_P(OnEveryDevice, CustomGradientRejectsWrongShapesAndCaptures) {
  const auto wrong = custom(
      "wrong", [](const Array& x) { return x * 2; },
      [](const Array&, const Array&, const Array&) { return Array::ones({3}); });
  expect_throw<ShapeError>([&] { grad([&](const Array& a) { return sum(wrong(a)); })(Array::ones({2})); },
                           {"gradient of wrong", "(3,)", "(2,)"});
  expect_throw<ArgumentError>(
      [&] {
        grad([&](const Array& a) {
          const auto captures = custom(
              "captures", [&](const Array& x) { return x * a; },
              [](const Array& g, const Array&, const Array&) { return g; });
          return sum(captures(Array::ones({2})));
        })(Array::ones({2}));
      },
      {"[captures]", "not one of its arguments", "stop_gradient"});
}

TEST_P(OnEveryDevice, DifferentiatesAKernelWithABackwardKernel) {
  const auto scaled_square = with_gradient(
      kernel("scaled_square",
             [](Buffer<const float> x, Buffer<const int> sign, Val<float> by, Buffer<float> y) {
               const auto i = global_id();
               y[i] = by * x[i] * x[i] * cast<float>(sign[i]);
             }),
      kernel("scaled_square_back", [](Buffer<const float> x, Buffer<const int> sign, Val<float> by,
                                      Buffer<const float> /*y*/, Buffer<const float> gy, Buffer<float> gx) {
        const auto i = global_id();
        gx[i] = 2.0f * by * x[i] * cast<float>(sign[i]) * gy[i];
      }));
  const Array x = Array::from({1.f, 2.f, 3.f}), sign = Array::from({1, -1, 1});
  const auto f = [&](const Array& a) { return sum(scaled_square(3, {3}, a, sign, 0.5f) * a); };
  const auto [value, g] = value_and_grad(f)(x);
  EXPECT_EQ(value.item<float>(), 0.5f * (1 - 8 + 27));
  EXPECT_EQ(g.to_vector<float>(), (Floats{1.5f, -6, 13.5f}));
  EXPECT_EQ(scaled_square(3, {3}, Array::ones({6}).slice(0, 0, 6, 2), sign, 1.f).to_vector<float>(), (Floats{1, -1, 1}))
      << "views are made contiguous";
  auto first = grad(f);
  expect_throw<ArgumentError>([&] { grad([&](const Array& a) { return sum(first(a)); })(x); },
                              {"[scaled_square]", "no derivative"});
  const auto raw = kernel("raw", [](Buffer<const float> a, Buffer<float> y) { y[global_id()] = a[global_id()]; });
  expect_throw<ArgumentError>(
      [&] {
        grad([&](const Array& a) {
          Array out = Array::empty({3});
          raw.launch({3}, a, out);
          return sum(a);
        })(x);
      },
      {"launch"});
}

TEST_P(OnEveryDevice, RecomputationProducesTheSameGradient) {
  struct Two {
    Array weight, bias;
    Array operator()(const Array& x) const { return tanh(matmul(x, weight, {.bias = bias})); }
  };
  const Two two{Array::from(numbers(16), Shape{4, 4}), Array::from(numbers(4))};
  const Array x = Array::from(numbers(8), Shape{2, 4});
  int runs = 0;
  const auto through = [&](bool again) {
    return value_and_grad(
        [&, again](const Two& t, const Array& a) {
          if (!again) return sum(t(t(a)));
          const Array h = recompute(t)(a);
          return sum(recompute([&](const Two& u, const Array& b) {
            ++runs;
            return u(b);
          })(t, h));
        },
        wrt<0, 1>)(two, x);
  };
  const auto [plain, of_plain] = through(false);
  const auto [again, of_again] = through(true);
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(plain.item<float>(), again.item<float>());
  EXPECT_EQ(std::get<0>(of_plain).weight.to_vector<float>(), std::get<0>(of_again).weight.to_vector<float>());
  EXPECT_EQ(std::get<0>(of_plain).bias.to_vector<float>(), std::get<0>(of_again).bias.to_vector<float>());
  EXPECT_EQ(std::get<1>(of_plain).to_vector<float>(), std::get<1>(of_again).to_vector<float>());
  // Gradients of gradients.
  auto first = grad([](const Array& a) { return sum(recompute([](const Array& b) { return b * b * b; })(a)); });
  EXPECT_EQ(grad([&](const Array& a) { return sum(first(a)); })(Array::from({2.f})).to_vector<float>(), (Floats{12}));
  // A function that uses an array that is not passed as an argument.
  expect_throw<ArgumentError>(
      [&] { grad([&](const Array& a) { return sum(recompute([&](const Array& b) { return a * b; })(a * 2)); })(x); },
      {"[recompute]", "not one of its arguments"});
  EXPECT_FALSE(recompute([](const Array& b) { return b * b; })(x).has_history());
}

struct Noisy {
  Dense in;
  BatchNorm norm;
  Dropout drop;
  Array operator()(const Array& x) const { return drop(norm(in(x))); }
};

TEST_P(OnEveryDevice, RecomputationRepeatsDropoutAndBatchNorm) {
  auto model = setup(Noisy{{.inputs = 4, .outputs = 6}, {.channels = 6}, {}}, {.seed = 3});
  const Array x = Array::from(numbers(32), Shape{8, 4});
  const auto with = [&](bool again) {
    Training mode({.seed = 5, .counter = Counter(2)});
    const auto both = value_and_grad([&](const Noisy& m) {
      const Array y = again ? recompute(m)(x) : m(x);
      return sum(y * y);
    })(model);
    return std::tuple(both.first.item<float>(), both.second.in.weight.template to_vector<float>(),
                      pending_state(model.norm.running_mean).template to_vector<float>());
  };
  EXPECT_EQ(with(false), with(true));
}

struct Block {
  RmsNorm norm, norm2;
  MultiHeadAttention attention;
  Dense up, down;
  Array operator()(const Array& x) const {
    const Array h = x + attention(norm(x));
    return h + down(gelu(up(norm2(h))));
  }
};
struct Blocks {
  std::vector<Block> all;
};

TEST(Recompute, UsesAThirdOfTheMemoryForTransformerBlocks) {
  const Device cpu{Backend::cpu, 0};
  const DeviceScope scope(cpu);
  const Block block{{.size = 64}, {.size = 64}, {.size = 64, .heads = 4, .causal = true}, {64, 256}, {256, 64}};
  const auto model = setup(Blocks{std::vector<Block>(24, block)}, {.seed = 1});
  const Array x = random_normal({4, 64, 64}, 7);
  const auto run = [&](bool again) {
    trim(cpu);
    reset_peak_memory(cpu);
    const std::uint64_t before = memory_stats(cpu).live_bytes;
    std::uint64_t forward = 0;
    const auto both = value_and_grad([&](const Blocks& m) {
      Array h = x;
      for (const Block& b : m.all) h = again ? recompute(b)(h) : b(h);
      const Array y = mean(h * h);
      y.eval();
      forward = memory_stats(cpu).peak_bytes - before;
      return y;
    })(model);
    std::vector<Floats> gradients;
    for_each_array(both.second, [&](const Array& a) { gradients.push_back(a.to_vector<float>()); });
    return std::tuple(both.first.item<float>(), gradients, memory_stats(cpu).peak_bytes - before, forward);
  };
  const auto [plain, plain_gradients, plain_bytes, plain_forward] = run(false);
  const auto [again, again_gradients, again_bytes, again_forward] = run(true);
  EXPECT_EQ(plain, again);
  EXPECT_EQ(plain_gradients, again_gradients);
  std::uint64_t weights = 0;
  for (const Floats& g : plain_gradients) weights += g.size() * 4;
  // Both peaks include the gradients themselves.
  EXPECT_LE(3 * again_forward, plain_forward) << again_forward << " and " << plain_forward;
  EXPECT_LE(3 * (again_bytes - weights), plain_bytes) << again_bytes << ", " << plain_bytes << ", " << weights;
}

TEST(Recompute, UsesAThirdOfTheMemoryInARecordedStep) {
  const Device cpu{Backend::cpu, 0};
  const DeviceScope scope(cpu);
  const Block block{{.size = 64}, {.size = 64}, {.size = 64, .heads = 4, .causal = true}, {64, 256}, {256, 64}};
  const auto model = setup(Blocks{std::vector<Block>(24, block)}, {.seed = 1});
  std::uint64_t weights = 0;
  for (const NamedArray& p : parameters(model)) weights += p.array.bytes();
  const Array x = random_normal({4, 64, 64}, 7).eval();
  const auto run = [&](bool again) {
    Trainer<Blocks, Array> trainer(model, Sgd(model, {.lr = 0.1}), [again](const Blocks& m, const Array& batch) {
      Array h = batch;
      for (const Block& b : m.all) h = again ? recompute(b)(h) : b(h);
      return mean(h * h);
    });
    trainer.step(x), trainer.check();
    trim(cpu), reset_peak_memory(cpu);
    const std::uint64_t before = memory_stats(cpu).live_bytes;
    trainer.step(x), trainer.step(x), trainer.step(x), trainer.check();
    EXPECT_EQ(trainer.not_recorded(), "");
    EXPECT_EQ(trainer.replays(), 1u);
    std::vector<Floats> values;
    for_each_array(trainer.model(), [&](const Array& a) { values.push_back(a.to_vector<float>()); });
    return std::pair(values, memory_stats(cpu).peak_bytes - before);
  };
  const auto [plain, plain_bytes] = run(false);
  const auto [again, again_bytes] = run(true);
  EXPECT_EQ(plain, again);
  // Both peaks include the gradients and the row into which they are copied.
  EXPECT_LE(3 * (again_bytes - 2 * weights), plain_bytes - 2 * weights)
      << again_bytes << ", " << plain_bytes << ", " << weights;
}

}  // namespace
}  // namespace tessera
