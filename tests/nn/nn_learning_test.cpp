// SPDX-License-Identifier: Apache-2.0
// Small networks learn on every device, with the same results as on the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/grad/grad.h"
#include "tessera/nn/clip.h"
#include "tessera/nn/images.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/pack.h"
#include "tessera/nn/sequential.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

/// Returns the losses of training steps that all use the same batch, on the current device.
template <class Model>
std::vector<float> losses_of(Model model, const Array& x, const Array& y, int steps, bool packed) {
  if (packed) pack(model);
  Adam optimiser(model, {.lr = 1e-2});
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    Training mode({.seed = 1, .counter = Counter(static_cast<std::uint64_t>(i))});
    auto [loss, gradient] = value_and_grad([&](const Model& m) { return cross_entropy(m(x), y); })(model);
    clip_gradient_norm(gradient, 5);
    optimiser.step(model, gradient), mode.apply(model);
    losses.push_back(loss.template item<float>());
  }
  return losses;
}

/// Checks that a model learns on this device as it does on the CPU.
template <class Make>
void expect_learning(Make&& make, const Shape& input, int steps) {
  const auto run = [&](bool packed) {
    // The class of a sample is determined by the signs of two sums.
    Shape shape = input;
    shape.insert(shape.begin(), 64);
    const Array x = random_uniform(shape, 5, -1, 1);
    const Array rows = x.reshape({64, -1});
    const auto bit = [&](std::int64_t from) {
      return (sum(rows.slice(1, from, rows.shape(1), 2), {1}) > 0).astype(DType::i32);
    };
    return losses_of(make(), x, (bit(0) * 2 + bit(1)).eval(), steps, packed);
  };
  const auto here = run(false), packed = run(true), there = [&] {
    const DeviceScope cpu(Device{});
    return run(false);
  }();
  EXPECT_LT(here.back(), 0.6f * here.front());
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_NEAR(here[i], there[i], 1e-3) << i;
    EXPECT_NEAR(packed[i], here[i], 1e-3) << i;
  }
}

TEST_P(OnEveryDevice, TwoLayerNetworkLearns) {
  expect_learning([] { return setup(sequential(dense<10, 32>, relu, Dropout{.p = 0.1}, dense<32, 4>), {.seed = 2}); },
                  {10}, 30);
}

TEST_P(OnEveryDevice, SmallConvolutionNetworkLearns) {
  expect_learning(
      [] {
        return setup(Sequential{Conv2d{.out = 4, .kernel = 3, .padding = 1}, BatchNorm{}, Relu{}, MaxPool2d{},
                                Residual{Conv2d{.out = 4, .kernel = 3, .padding = 1}}, AveragePool2d{}, Flatten{},
                                Dense{.outputs = 4}},
                     {.seed = 2, .input = {1, 8, 8}});
      },
      {1, 8, 8}, 40);
}

TEST_P(OnEveryDevice, GradientsAreEmptyForStateAndFrozenParameters) {
  auto model =
      setup(Sequential{Dense{.outputs = 3}, BatchNorm{}, Dense{.outputs = 2, .with_bias = false}}, {.input = {4}});
  freeze(model, "0.weight");
  const auto before = model.get<0>().weight.to_vector<float>();
  Training mode;
  auto gradient =
      grad([](const auto& m, const Array& x) { return sum(m(x) * m(x)); })(model, random_uniform({5, 4}, 1));
  EXPECT_TRUE(gradient.template get<0>().weight.empty());
  EXPECT_EQ(gradient.template get<0>().bias.shape(), (Shape{3}));
  EXPECT_TRUE(gradient.template get<1>().running_mean.empty());
  EXPECT_TRUE(gradient.template get<2>().bias.empty());
  EXPECT_EQ(gradient.template get<2>().weight.shape(), (Shape{2, 3}));
  Sgd optimiser(model, {.lr = 0.1});
  optimiser.step(model, gradient);
  EXPECT_EQ(model.get<0>().weight.to_vector<float>(), before);
}

}  // namespace
}  // namespace tessera
