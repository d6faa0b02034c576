// SPDX-License-Identifier: Apache-2.0
// Mixed precision: what copies of 16 bits compute, gradients by them, and the loss scale; on every device.
#include "tessera/nn/precision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tessera/array/saved_arrays.h"
#include "tessera/nn/clip.h"
#include "tessera/nn/fit.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/pack.h"
#include "tessera/nn/sequential.h"
#include "tessera/ops/product.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Batch = std::tuple<Array, Array>;
using Values = std::vector<std::vector<float>>;

template <class M>
Values values(const M& model) {
  Values out;
  for_each_array(model, [&](const Array& a) {
    if (a.size() > 0) out.push_back(a.astype(DType::f32).template to_vector<float>());
  });
  return out;
}
void expect_near(const Values& a, const Values& b, double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) EXPECT_NEAR(a[i][j], b[i][j], bound) << i << " " << j;
}

auto network() {
  return setup(sequential(dense<6, 12>, BatchNorm{}, relu, Dropout{.p = 0.2}, dense<12, 3>), {.seed = 3, .input = {6}});
}
using Network = decltype(network());
Array loss_of(const Network& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); }
Batch data(std::int64_t n) {
  const Array x = random_uniform({n, 6}, 5, -1, 1).eval();
  return {x, argmax(x.slice(1, 0, 3), 1).astype(DType::i32).eval()};
}

struct Row {
  Parameter w;
  Array operator()(const Array& x) const { return sum(w * x); }
};
Row row(std::vector<float> w) { return {Array::from(w)}; }
constexpr DType both[] = {DType::bf16, DType::f16};

// What is multiplied and the adjoint have few bits, so that only sums can be rounded.
TEST_P(OnEveryDevice, GradientsOfCopiesAreSumsInF32) {
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

TEST_P(OnEveryDevice, ManySmallGradientsAreNotLost) {
  // 1 and then many that are too small beside it for f16: by uses of one parameter, by rows of a table, by a sum.
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

// A network of two layers, beside plain loops in double that round nothing. What is compared with is the sum of the
// absolute values of what a gradient is the sum of.
TEST_P(OnEveryDevice, AGradientIsThatOfDoubleWithinItsBits) {
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

TEST_P(OnEveryDevice, NormsAndWhatIsKeptStayF32AndFrozenOnesAreCopied) {
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
    unfreeze(model);  // afterwards, too
    const auto all = precision.value_and_grad([&](const Net& m) { return mean(m(x).astype(DType::f32)); })(model);
    EXPECT_EQ(all.second.out.weight.shape(), model.out.weight.shape());
  }
}

Trainer<Network> trainer_of(const Network& model, const AnyOptimiser& optimiser, TrainerOptions options) {
  return {model, optimiser, loss_of, options};
}

TEST_P(OnEveryDevice, ARecordedStepGivesTheBitsOfAnEagerOne) {
  const Network model = network();
  const auto run = [&](const AnyOptimiser& optimiser, TrainerOptions options) {
    Trainer<Network> trainer = trainer_of(model, optimiser, options);
    for (int epoch = 0; epoch < 6; ++epoch)
      for (const auto& batch : batches(std::get<0>(data(20)), std::get<1>(data(20)), {.size = 8})) trainer.step(batch);
    trainer.check();
    EXPECT_EQ(trainer.replays() > 0, options.recorded);
    EXPECT_EQ(trainer.not_recorded().empty(), options.recorded) << trainer.not_recorded();
    return std::tuple(values(trainer.model()), trainer.skipped(), trainer.loss_scale());
  };
  const auto same = [&](const AnyOptimiser& optimiser, TrainerOptions options) {
    TrainerOptions eager = options;
    eager.recorded = false;
    const auto a = run(optimiser, options), b = run(optimiser, eager);
    EXPECT_EQ(a, b);
    EXPECT_NE(std::get<0>(a), values(model));
  };
  const auto adam = Adam(model, {.lr = 1e-2, .groups = {{.pattern = "*.bias", .lr = 1e-3}}});
  same(adam, {.precision = {.dtype = DType::bf16}});
  // Begins with steps that overflow, and grows again.
  same(adam, {.clip_norm = 0.5,
              .precision = {.dtype = DType::f16, .loss_scale = {.init_scale = 0x1p26, .growth_interval = 3}}});
  same(Sgd(model, {.lr = 0.1, .momentum = 0.9}),
       {.clip_norm = 0.5, .clip_value = 0.2, .accumulate = 2, .precision = {.dtype = DType::f16}});
}

TEST_P(OnEveryDevice, AStepThatOverflowsIsSkippedAndCountedAndTheScaleHalved) {
  const auto [x, y] = data(8);
  const auto model = setup(sequential(dense<6, 3>, BatchNorm{}), {.seed = 3, .input = {6}});
  using M = std::remove_const_t<decltype(model)>;
  const auto loss = [](const M& m, const Batch& b) { return 1e6 * cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  const auto optimisers = std::vector<std::pair<AnyOptimiser, double>>{
      {Sgd(model, {.lr = 1e-7, .momentum = 0.9, .dampening = 0.5}), 0}, {Adam(model, {.lr = 1e-2}), 1e-6}};
  for (const bool recorded : {true, false})
    for (const auto& [optimiser, bound] : optimisers) {
      TrainerOptions options{.recorded = recorded, .precision = {.dtype = DType::f16}};
      Trainer<M> trainer(model, optimiser, loss, options);
      const auto before = values(model);
      std::uint64_t skipped = 0;
      while (trainer.skipped() == skipped && skipped < 40) {  // until one is made
        EXPECT_EQ(values(trainer.model()), before);           // running figures too
        EXPECT_EQ(trainer.loss_scale(), std::ldexp(65536.0, -static_cast<int>(skipped)));
        trainer.step({x, y});
        ++skipped;
      }
      --skipped;
      EXPECT_GE(skipped, 4u);
      EXPECT_LE(skipped, 30u);
      EXPECT_NE(values(trainer.model()), before);
      for (int i = 0; i < 3; ++i) trainer.step({x, y});
      trainer.check();
      EXPECT_EQ(trainer.steps(), skipped + 4);
      EXPECT_TRUE(std::isfinite(trainer.mean_loss()));
      // As one that began with that scale: of Adam's sums, too, skipped steps are none.
      options.precision.loss_scale.init_scale = std::ldexp(65536.0, -static_cast<int>(skipped));
      Trainer<M> other(model, optimiser, loss, options);
      for (int i = 0; i < 4; ++i) other.step({x, y});
      EXPECT_EQ(trainer.skipped(), skipped + other.skipped());
      expect_near(values(trainer.model()), values(other.model()), bound);
    }
}

TEST_P(OnEveryDevice, TheScaleGrowsAfterStepsThatWereFinite) {
  const auto batch = data(8);
  const Network model = network();
  LossScaleOptions scale{.init_scale = 64, .growth_factor = 4, .growth_interval = 3};
  Trainer<Network> trainer = trainer_of(model, Adam(model), {.precision = {.dtype = DType::f16, .loss_scale = scale}});
  for (const double want : {64, 64, 256, 256, 256, 1024}) {
    trainer.step(batch);
    EXPECT_EQ(trainer.loss_scale(), want);
  }
  EXPECT_EQ(trainer.skipped(), 0u);
  scale.growth_factor = 1e30, scale.growth_interval = 1, scale.enabled = true;
  Trainer<Network> wide = trainer_of(model, Adam(model), {.precision = {.dtype = DType::bf16, .loss_scale = scale}});
  wide.step(batch);
  EXPECT_EQ(wide.loss_scale(), 0x1p64);
  Trainer<Network> without = trainer_of(model, Adam(model), {.precision = {.dtype = DType::bf16}});
  without.step(batch);
  EXPECT_EQ(without.loss_scale(), 1);
}

TEST_P(OnEveryDevice, WhatNoScaleMendsIsNamed) {
  const auto [x, y] = data(8);
  const Network model = network();
  const auto logs = [](const Network& m, const Batch& b) {
    return loss_of(m, b) + mean(log(abs(std::get<0>(b)).slice(0, 0, 1)) * 1e-9);
  };
  const LossScaleOptions least{.init_scale = 4, .smallest = 1};
  for (const PrecisionOptions& precision :
       {PrecisionOptions{.dtype = DType::bf16}, PrecisionOptions{.dtype = DType::f16, .loss_scale = least}}) {
    Trainer<Network> trainer(model, Adam(model), logs, {.precision = precision});
    for (int i = 0; i < 4; ++i) trainer.step({x, y});
    const auto before = values(trainer.model());
    const std::uint64_t skips = precision.dtype == DType::f16 ? 2 : 0;  // 4, 2, and then it is 1
    for (int i = 0; i < 6; ++i) trainer.step({Array::zeros({8, 6}), y});
    EXPECT_EQ(values(trainer.model()), before);
    EXPECT_EQ(trainer.skipped(), skips);
    try {
      trainer.check();
      FAIL() << "no error";
    } catch (const NotFinite& e) {
      EXPECT_EQ(e.step(), 5 + skips);
      EXPECT_NE(std::string(e.what()).find("by log"), std::string::npos) << e.what();
    }
    EXPECT_EQ(trainer.steps(), 4 + skips);
    EXPECT_EQ(values(trainer.model()), before);
    trainer.step({x, y});
    trainer.check();
    EXPECT_NE(values(trainer.model()), before);
  }
  // The layer is named, by the copy that it computes with.
  auto large = setup(sequential(dense<6, 3>, relu, dense<3, 3>), {.seed = 1});
  large.get<2>().weight.assign(Array::full({3, 3}, 1e5));  // infinite as f16
  using M = decltype(large);
  Trainer<M> trainer(large, Sgd(large), [](const M& m, const Batch& b) { return mean(m(std::get<0>(b))); },
                     {.precision = {.dtype = DType::f16, .loss_scale = {.enabled = false}}});
  trainer.step({x, y});
  EXPECT_NE(test::text_of<NotFinite>([&] { trainer.check(); }).find("2.weight as f16"), std::string::npos);
}

TEST_P(OnEveryDevice, ACheckpointGoesOnToTheSameBits) {
  const test::Folder folder;
  const Batch all = data(20);
  const Network model = network();
  const auto run = [&](std::uint64_t steps, const PrecisionOptions& precision, std::int64_t accumulate) {
    std::uint64_t told = 0;
    const auto fitted = fit(model, batches(std::get<0>(all), std::get<1>(all), {.size = 8, .shuffle = true}),
                            {.loss = loss_of,
                             .optimiser = Adam(model, {.lr = 1e-2}),
                             .steps = steps,
                             .callbacks = {.progress = [&](const FitProgress& p) { told = p.skipped; }},
                             .checkpoint = (folder / "c").string(),
                             .resume = true,
                             .trainer = {.accumulate = accumulate, .precision = precision}});
    EXPECT_EQ(fitted.result.skipped, told);
    return std::pair(values(fitted.model), fitted.result.skipped);
  };
  const PrecisionOptions scaled{.dtype = DType::f16, .loss_scale = {.init_scale = 0x1p24, .growth_interval = 4}};
  for (const PrecisionOptions& precision : {PrecisionOptions{.dtype = DType::bf16}, scaled})
    for (const std::int64_t accumulate : {1, 2}) {
      std::filesystem::remove(folder / "c");
      const auto whole = run(20, precision, accumulate);
      EXPECT_EQ(whole.second > 0, precision.dtype == DType::f16);
      std::filesystem::remove(folder / "c");
      for (const std::uint64_t cut : {1u, 5u, 12u}) run(cut, precision, accumulate);
      EXPECT_EQ(run(20, precision, accumulate), whole);
    }
  expect_throw<ArgumentError>([&] { run(21, {.dtype = DType::bf16}, 2); },
                              {"precision is f16 in the file and bf16 here"});
}

TEST_P(OnEveryDevice, AnOwnLoopDoesWhatATrainerDoes) {
  const test::Folder folder;
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
        if (step == 9) {  // kept and found again
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

TEST_P(OnEveryDevice, WeightsThatAreWrittenOtherwiseAreCopiedAnew) {
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
      {"[MixedPrecision.step]", "path = w", "lies elsewhere", "pack"});
}

TEST_P(OnEveryDevice, WhatCannotBeIsSaid) {
  const Array whole = Array::ones({2, 2}, DType::i32), half = Array::ones({2, 2}, DType::f16);
  expect_throw<DtypeError>([&] { matmul(whole, whole, {.dtype = DType::f32}); },
                           {"[matmul]", "i32", "floats to floats"});
  expect_throw<DtypeError>([&] { matmul(half, half, {.dtype = DType::i32}); }, {"[matmul]", "i32", "floats to floats"});
  const Row model = row({1});
  const auto with = [&](PrecisionOptions o) { return [=] { MixedPrecision<Row>(model, o); }; };
  for (const DType t : {DType::f64, DType::i32, DType::boolean})
    expect_throw<DtypeError>(with({.dtype = t}), {"[MixedPrecision]", dtype_name(t), "bf16 or f16"});
  expect_throw<DtypeError>([] { MixedPrecision<Row>({Array::ones({2}, DType::f64)}, {.dtype = DType::f16}); },
                           {"[MixedPrecision]", "path = w", "f64", "parameters are f32"});
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
