// SPDX-License-Identifier: Apache-2.0
// Mixed precision on every device: results with 16-bit copies, gradients, and user-written training loops.
#include "tessera/nn/precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tessera/array/saved_arrays.h"
#include "tessera/nn/clip.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/pack.h"
#include "tessera/nn/sequential.h"
#include "tessera/ops/product.h"
#include "tests/nn/small_network.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using namespace test;
TESSERA_ON_EVERY_DEVICE();

struct Row {
  Parameter w;
  Array operator()(const Array& x) const { return sum(w * x); }
};
Row row(std::vector<float> w) { return {Array::from(w)}; }
constexpr DType both[] = {DType::bf16, DType::f16};

// The operands have few significant bits, so that only sums are rounded.
TEST_P(OnEveryDevice, GradientsOfCopiesAreAccumulatedInF32) {
  const std::int64_t n = 700, in = 24, out = 5;
  std::vector<float> x(static_cast<std::size_t>(n * in)), c(static_cast<std::size_t>(n * out));
  for (float& v : x) v = static_cast<float>(std::uniform_int_distribution<int>(-64, 64)(random)) / 64;
  for (float& v : c) v = static_cast<float>(std::uniform_int_distribution<int>(-64, 64)(random)) / 4096;
  const Array xs = Array::from(x, Shape{n, in}), cs = Array::from(c, Shape{n, out});
  const auto model = setup(Dense{.inputs = in, .outputs = out}, {.seed = 1});
  for (const DType t : both) {
    MixedPrecision precision(model, {.dtype = t});
    auto [values, gradient] = precision.value_and_grad([&](const Dense& m) {
      EXPECT_EQ(m.weight.dtype(), t);
      EXPECT_EQ(m.bias.dtype(), t);
      const Array y = m(xs);
      EXPECT_EQ(y.dtype(), t);
      return std::tuple(sum(y.astype(DType::f32) * cs), y);
    })(model);
    EXPECT_EQ(std::get<1>(values).dtype(), t);
    EXPECT_EQ(gradient.weight.dtype(), DType::f32);
    const auto dw = gradient.weight.to_vector<float>(), db = gradient.bias.to_vector<float>();
    for (std::int64_t o = 0; o < out; ++o) {
      double bias = 0;
      for (std::int64_t i = 0; i < in; ++i) {
        double weight = 0;
        for (std::int64_t k = 0; k < n; ++k)
          weight += double{x[static_cast<std::size_t>(k * in + i)]} * c[static_cast<std::size_t>(k * out + o)];
        EXPECT_NEAR(dw[static_cast<std::size_t>(o * in + i)], weight, 1e-6) << dtype_name(t);
      }
      for (std::int64_t k = 0; k < n; ++k) bias += c[static_cast<std::size_t>(k * out + o)];
      EXPECT_NEAR(db[static_cast<std::size_t>(o)], bias, 1e-6) << dtype_name(t);
    }
  }
}

TEST_P(OnEveryDevice, SmallGradientsAreNotLostInSums) {
  // Adds many numbers to 1, each of them too small to change an f16 sum. The sums are over the uses of one parameter,
  // over the rows of a table, and over the elements of a reduction.
  const float small = 0x1p-12f;
  const Row model = row({0.5f});
  MixedPrecision precision(model, {.dtype = DType::f16, .loss_scale = {.init_scale = 1}});
  const auto uses = precision.value_and_grad([&](const Row& m) {
    Array total = sum(m.w.astype(DType::f32));
    for (int i = 0; i < 48; ++i) total = total + sum((m.w * small).astype(DType::f32));
    return total;
  })(model);
  EXPECT_EQ(uses.second.w.to_vector<float>(), std::vector<float>{1 + 48 * small});

  std::vector<float> each(2049, small);
  each[0] = 1;
  const Array by = Array::from(each);
  const auto summed = precision.value_and_grad(
      [&](const Row& m) { return sum((m.w.broadcast_to({2049}) * by.astype(DType::f16)).astype(DType::f32)); })(model);
  EXPECT_EQ(summed.second.w.to_vector<float>(), std::vector<float>{1.5f});

  const auto table = setup(Embedding{.count = 2, .size = 1}, {.seed = 1});
  MixedPrecision of_table(table, {.dtype = DType::f16, .loss_scale = {.init_scale = 1}});
  const auto rows = of_table.value_and_grad([&](const Embedding& m) {
    return sum(m(Array::zeros({2049}, DType::i32)).squeeze(1).astype(DType::f32) * by);
  })(table);
  EXPECT_EQ(rows.second.weight.to_vector<float>(), (std::vector<float>{1.5f, 0}));
}

// Compares a network of two layers with plain loops in double precision. Errors are relative to the sum of the absolute
// values of a gradient's terms.
TEST_P(OnEveryDevice, GradientMatchesDoublePrecisionReference) {
  struct Sum {
    double value = 0, size = 0;
    void operator+=(double v) { value += v, size += std::fabs(v); }
  };
  const std::size_t n = 32, in = 7, hidden = 20;
  const auto x = numbers(n * in, -1, 1), y = numbers(n, -1, 1);
  const auto model = setup(sequential(dense<7, 20>, tanh, dense<20, 1>), {.seed = 2});
  const auto p = values(model);
  std::vector<Sum> w1(hidden * in), b1(hidden), w2(hidden), b2(1);
  for (std::size_t k = 0; k < n; ++k) {
    std::vector<double> h(hidden);
    double out = p[3][0];
    for (std::size_t j = 0; j < hidden; ++j) {
      h[j] = p[1][j];
      for (std::size_t i = 0; i < in; ++i) h[j] += double{p[0][j * in + i]} * x[k * in + i];
      h[j] = std::tanh(h[j]);
      out += p[2][j] * h[j];
    }
    const double g = 2 * (out - y[k]) / n;
    b2[0] += g;
    for (std::size_t j = 0; j < hidden; ++j) {
      w2[j] += g * h[j];
      const double back = g * p[2][j] * (1 - h[j] * h[j]);
      b1[j] += back;
      for (std::size_t i = 0; i < in; ++i) w1[j * in + i] += back * x[k * in + i];
    }
  }
  const Array xs = Array::from(x, Shape{n, in}), ys = Array::from(y, Shape{n, 1});
  for (const auto& [t, bits] : {std::pair{DType::bf16, 0x1p-8}, {DType::f16, 0x1p-11}, {DType::f32, 1e-6}}) {
    MixedPrecision precision(model, {.dtype = t});
    const auto [loss, gradient] = precision.value_and_grad([&](const auto& m) { return mse_loss(m(xs), ys); })(model);
    const auto g = values(gradient);
    const auto near = [&, bits = bits, t = t](const std::vector<float>& got, const std::vector<Sum>& want) {
      ASSERT_EQ(got.size(), want.size());
      double most = 0;
      for (const Sum& s : want) most = std::max(most, s.size);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], want[i].value, 3 * bits * most) << dtype_name(t) << " seed " << testing::seed();
    };
    near(g[0], w1), near(g[1], b1), near(g[2], w2), near(g[3], b2);
  }
}

TEST_P(OnEveryDevice, NormsAndKeptParametersStayF32AndFrozenParametersAreConverted) {
  struct Net {
    Dense in{.inputs = 4, .outputs = 8};
    LayerNorm norm{.shape = {8}};
    RmsNorm rms{.size = 8};
    Parameter mine = Array::ones({8}), kept = Array::ones({8});
    Dense out{.inputs = 8, .outputs = 2};
    Array operator()(const Array& x) const { return out(rms(norm(in(x))) * mine); }
  };
  auto model = setup(Net{}, {.seed = 1});
  freeze(model, "out.*");
  const auto before = values(model.out);
  {
    const DType t = DType::bf16;
    Sgd optimiser(model, {.lr = 0.1});
    MixedPrecision precision(model, {.dtype = t, .keep = {"ke?t"}});
    const Array x = random_normal({5, 4}, 1);
    auto [loss, gradient] = precision.value_and_grad([&](const Net& m) {
      EXPECT_EQ(m.in.weight.dtype(), t);
      EXPECT_EQ(m.mine.dtype(), t);
      EXPECT_EQ(m.out.weight.dtype(), t);
      for (const Array* a : {&static_cast<const Array&>(m.norm.weight), &static_cast<const Array&>(m.norm.bias),
                             &static_cast<const Array&>(m.rms.weight), &static_cast<const Array&>(m.kept)})
        EXPECT_EQ(a->dtype(), DType::f32);
      const Array y = m(x);
      EXPECT_EQ(y.dtype(), t);
      return mean(y.astype(DType::f32) * y.astype(DType::f32));
    })(model);
    EXPECT_TRUE(gradient.out.weight.empty());
    for (const NamedArray& g : parameters(gradient)) EXPECT_EQ(g.array.dtype(), DType::f32) << g.path;
    precision.step(optimiser, model, gradient);
    for (const NamedArray& p : parameters(model)) EXPECT_EQ(p.array.dtype(), DType::f32) << p.path;
    EXPECT_EQ(values(model.out), before);
    unfreeze(model);  // parameters may also be unfrozen later
    const auto all = precision.value_and_grad([&](const Net& m) { return mean(m(x).astype(DType::f32)); })(model);
    EXPECT_EQ(all.second.out.weight.shape(), model.out.weight.shape());
  }
}

TEST_P(OnEveryDevice, UserWrittenLoopMatchesTheTrainer) {
  const Folder folder;
  const auto [x, y] = data(8);
  const PrecisionOptions scaled{.dtype = DType::f16, .loss_scale = {.init_scale = 0x1p24, .growth_interval = 4}};
  for (const PrecisionOptions& options : {PrecisionOptions{.dtype = DType::bf16}, scaled, PrecisionOptions{}})
    for (const bool packed : {true, false}) {
      Network model = clone(network());
      Trainer<Network> trainer =
          trainer_of(model, Adam(model, {.lr = 1e-2}), {.clip_value = 0.1, .precision = options});
      if (packed) pack(model);
      Adam optimiser(model, {.lr = 1e-2});
      std::optional<MixedPrecision<Network>> precision(std::in_place, model, options);
      for (std::uint64_t step = 1; step <= 16; ++step) {
        Training mode({.counter = Counter(step)});
        auto [loss, gradient] = precision->value_and_grad([&, x = x, y = y](const Network& m) {
          return loss_of(m, {x, y});
        })(model);
        clip_gradient_value(gradient, 0.1);
        precision->step(optimiser, model, gradient, mode);
        trainer.step({x, y});
        if (step == 9) {  // save and restore the state
          save_arrays(*precision, folder / "p");
          precision.emplace(model, options);
          load_arrays(*precision, folder / "p");
        }
      }
      EXPECT_EQ(precision->skipped(), trainer.skipped());
      EXPECT_EQ(precision->skipped() > 0, options.dtype == DType::f16);
      EXPECT_EQ(precision->scale(), trainer.loss_scale());
      EXPECT_EQ(values(model), values(trainer.model())) << dtype_name(options.dtype) << (packed ? " packed" : "");
    }
}

TEST_P(OnEveryDevice, CopiesAreUpdatedAfterWeightsAreWritten) {
  Row model = row({1, 2});
  MixedPrecision precision(model, {.dtype = DType::bf16});
  const auto of = [&] {
    return precision.value_and_grad([](const Row& m) { return sum(m.w.astype(DType::f32)); })(model)
        .first.item<float>();
  };
  EXPECT_EQ(of(), 3);
  model.w.assign(Array::from({4.f, 5.f}));
  EXPECT_EQ(of(), 9);
  Sgd optimiser(model, {.lr = 1});
  optimiser.step(model, row({1, 1}));
  EXPECT_EQ(of(), 7);
  Row other = clone(model);
  expect_throw<ArgumentError>(
      [&] {
        precision.step(optimiser, other, row({1, 1}));
      },
      {"[MixedPrecision.step]", "path = w", "was replaced", "pack"});
}

TEST_P(OnEveryDevice, RejectsInvalidOptionsAndModels) {
  const Array whole = Array::ones({2, 2}, DType::i32), half = Array::ones({2, 2}, DType::f16);
  expect_throw<DtypeError>([&] { matmul(whole, whole, {.dtype = DType::f32}); },
                           {"[matmul]", "i32", "only be chosen for float operands"});
  expect_throw<DtypeError>([&] { matmul(half, half, {.dtype = DType::i32}); },
                           {"[matmul]", "i32", "only be chosen for float operands"});
  const Row model = row({1});
  const auto with = [&](PrecisionOptions o) { return [=] { MixedPrecision<Row>(model, o); }; };
  for (const DType t : {DType::f64, DType::i32, DType::boolean})
    expect_throw<DtypeError>(with({.dtype = t}), {"[MixedPrecision]", dtype_name(t), "bf16 or f16"});
  expect_throw<DtypeError>([] { MixedPrecision<Row>({Array::ones({2}, DType::f64)}, {.dtype = DType::f16}); },
                           {"[MixedPrecision]", "path = w", "f64", "needs f32 parameters"});
  expect_throw<DtypeError>(
      [] {
        const Row m{Array::ones({2}, DType::bf16)};
        Trainer<Row>(m, Sgd(m), [](const Row& r, const Batch&) { return sum(r.w); },
                     {.precision = {.dtype = DType::bf16}});
      },
      {"[Trainer]", "path = w", "precision.dtype = bf16"});
  expect_throw<ArgumentError>(with({.dtype = DType::f16, .keep = {"v"}}), {"keep = v", "no parameter"});
  expect_throw<ArgumentError>(with({.dtype = DType::f16, .loss_scale = {.init_scale = 0}}), {"loss_scale.init_scale"});
  expect_throw<ArgumentError>(with({.dtype = DType::f16, .loss_scale = {.growth_factor = 1}}), {"growth_factor"});
  expect_throw<ArgumentError>(with({.dtype = DType::f16, .loss_scale = {.backoff_factor = 1}}), {"backoff_factor"});
  expect_throw<ArgumentError>(with({.dtype = DType::f16, .loss_scale = {.growth_interval = 0}}), {"growth_interval"});
  expect_throw<ArgumentError>(with({.dtype = DType::f16, .loss_scale = {.smallest = 1e6}}), {"smallest"});
}

}  // namespace
}  // namespace tessera
