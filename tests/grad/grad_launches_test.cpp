// SPDX-License-Identifier: Apache-2.0
// The cost of gradients and optimiser steps: the number of launches, and the bytes that they read and write.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tessera/grad/grad.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/pack.h"
#include "tessera/nn/precision.h"
#include "tessera/ops/transformer.h"
#include "tests/support/every_device.h"
#include "tests/support/launches.h"

namespace tessera {
namespace {

using test::Launches;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

/// Counts the launches of the backward pass only. The forward pass is run and evaluated beforehand.
template <class F, class X>
void expect_walk(F f, const X& x, std::uint64_t most_launches, std::uint64_t most_bytes, const char* what) {
  for (const bool first : {true, false}) {  // the first call does one-time work, such as creating tables
    const auto [value, back] = pullback(f, x);
    value.eval();
    const Array adjoint = Array::ones(value.shape()).eval();
    const Launches seen;
    const auto gradient = back(adjoint);
    if (first) continue;
    EXPECT_LE(seen.count, most_launches) << what << ": " << seen.names;
    EXPECT_LE(seen.bytes, most_bytes) << what << ": " << seen.names;
    EXPECT_GE(seen.count, 1u) << what;
  }
}

constexpr std::int64_t rows = 96, columns = 128;
constexpr std::uint64_t whole = rows * columns * 4, some = 16 * (rows + columns) + 4096;

TEST_P(OnEveryDevice, BackwardOfAChainReadsAndWritesEachArrayOnce) {
  const Array x = random_normal({rows, columns}, 1).eval(), row = random_uniform({columns}, 2, 1, 2).eval();
  const auto f = [](const std::vector<Array>& v) { return sum(exp(-0.5 * v[0] * v[0]) / v[1]); };
  expect_walk([&](const Array& a) { return f({a, row}); }, x, 1, 2 * whole + some, "by x");
  // The second launch is the sum over rows.
  expect_walk(f, std::vector{x, row}, 2, 3 * whole + 2 * some, "by x and row");
}

TEST_P(OnEveryDevice, BackwardOfAGatedUnitTakesOneLaunch) {
  const Array gate = random_normal({rows, columns}, 1).eval(), up = random_normal({rows, columns}, 2).eval();
  expect_walk([](const std::vector<Array>& v) { return sum(silu_gate(v[0], v[1])); }, std::vector{gate, up}, 1,
              4 * whole + some, "silu_gate");
}

TEST_P(OnEveryDevice, BackwardOfRowOperationsTakesFewLaunches) {
  const Array x = random_normal({rows, columns}, 1).eval(), weight = random_uniform({columns}, 2, 1, 2).eval();
  const Array g = random_normal({rows, columns}, 3).eval();
  // The first launch computes one number per row, the second all elements.
  expect_walk([&](const Array& a) { return sum(softmax(a) * g); }, x, 2, 5 * whole + 2 * some, "softmax");
  expect_walk([&](const Array& a) { return sum(rms_norm(a, weight, 1e-5f) * g); }, x, 2, 5 * whole + 3 * some,
              "rms_norm by x");
  const Array classes = (random_bits({rows}, 4) % columns).astype(DType::i32).eval();
  expect_walk([&](const Array& a) { return cross_entropy(a, classes); }, x, 3, 2 * whole + 3 * some, "cross_entropy");
}

/// Counts launches that write an array of at least this many bytes.
class LargeWrites : public LaunchInterceptor {
 public:
  explicit LargeWrites(std::uint64_t bytes) : bytes_(bytes) { thread_context.launch_interceptor = this; }
  ~LargeWrites() override { thread_context.launch_interceptor = nullptr; }
  void launched(const Kernel& kernel, Device, std::array<std::uint64_t, 3>, std::span<const LaunchArgument> arguments,
                const std::function<void()>& launch) override {
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].view.storage && kernel.function().params[i].access != ir::Access::read &&
          arguments[i].view.bytes() >= bytes_)
        ++count, names += kernel.function().name + " ";
    launch();
  }
  int count = 0;
  std::string names;

 private:
  const std::uint64_t bytes_;
};

TEST_P(OnEveryDevice, CrossEntropyWritesOneArrayOfTheLogitsSize) {
  const Array x = random_normal({rows, columns}, 1).eval(), weight = random_uniform({columns}, 2, 1, 2).eval();
  const Array classes = (random_bits({rows}, 4) % columns).astype(DType::i32).eval();
  const Array positions = x.reshape({rows / 4, 4, columns}).permute({0, 2, 1}), two = classes.reshape({rows / 4, 4});
  for (const auto& [logits, targets] : {std::pair{x, classes}, {positions, two}})
    for (const bool weighted : {false, true})
      for (const double smoothing : {0.0, 0.1})
        for (const bool first : {true, false}) {
          CrossEntropyOptions options{.label_smoothing = smoothing};
          if (weighted) options.weight = weight;
          const auto f = [&, t = targets](const Array& a) { return cross_entropy(a, t, options); };
          const LargeWrites seen(whole / 4);  // includes bools
          auto [loss, gradient] = value_and_grad(f)(logits);
          loss.eval(), gradient.eval();
          EXPECT_EQ(seen.count, 1) << seen.names << first;
        }
  const Launches seen;
  cross_entropy(x, classes).eval();
  EXPECT_LE(seen.bytes, whole + 2 * some) << "the logits are read once: " << seen.names;
}

TEST_P(OnEveryDevice, AdamStepTakesOneLaunchPerParameter) {
  auto model = setup(Dense{.inputs = columns, .outputs = rows, .with_bias = false}, {.seed = 1});
  const auto gradient = grad([](const Dense& m) { return sum(m.weight * m.weight); })(model);
  Adam optimiser(model, {.lr = 1e-3});
  optimiser.step(model, gradient);
  optimiser.advance();
  const Launches seen;
  optimiser.apply(model, gradient);
  EXPECT_EQ(seen.count, 1u) << seen.names;
  EXPECT_LE(seen.bytes, 7 * whole + some) << "reads weight, gradient and two moments, and writes three arrays";
}

TEST_P(OnEveryDevice, AdamStepWrites16BitCopiesInTheSameLaunch) {
  struct Net {
    Dense in, out;
  };
  for (const bool packed : {true, false}) {
    auto model = setup(Net{{columns, rows}, {columns, rows}}, {.seed = 1});
    if (packed) pack(model);
    Net narrow = model;
    const detail::Precision precision("test", {.dtype = DType::f16}, detail::parts_of(model));
    precision.narrow(detail::parts_of(narrow));
    auto gradient = grad([](const Net& m) {
      return sum(m.in.weight * m.in.weight) + sum(m.out.weight) + sum(m.in.bias) + sum(m.out.bias);
    })(model);
    pack(gradient);
    Adam optimiser(model, {.lr = 1e-3});
    optimiser.step(model, gradient);
    optimiser.advance();
    const Launches seen;
    optimiser.apply(model, gradient, {.copies = precision.copies()});
    EXPECT_EQ(seen.count, packed ? 1u : 4u) << seen.names;
    EXPECT_LE(seen.bytes, 2 * (7 * whole + whole / 2 + some));
    EXPECT_EQ(narrow.out.weight.to_vector<half>(), model.out.weight.astype(DType::f16).to_vector<half>());
    EXPECT_EQ(narrow.in.bias.dtype(), DType::f16);
  }
}

TEST_P(OnEveryDevice, AdamStepTakesOneLaunchPerGroup) {
  struct Net {
    Dense in, out;
  };
  auto model = setup(Net{{8, 16}, {16, 4}}, {.seed = 1});
  pack(model);
  const auto gradient = grad([](const Net& m) {
    return sum(m.in.weight * m.in.weight) + sum(m.in.bias * 2) + sum(m.out.weight * 3) + sum(m.out.bias);
  })(model);
  Adam optimiser(model, {.lr = 1e-3});
  optimiser.step(model, gradient);
  optimiser.advance();
  const Launches seen;
  optimiser.apply(model, gradient);
  EXPECT_LE(seen.count, 1u + 4u) << "each gradient is first copied into a common row: " << seen.names;
}

}  // namespace
}  // namespace tessera
