// SPDX-License-Identifier: Apache-2.0
// Trainers in mixed precision on every device: recorded steps, the loss scale, skipped steps and checkpoints.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tessera/nn/fit.h"
#include "tests/nn/small_network.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using namespace test;
TESSERA_ON_EVERY_DEVICE();

TEST_P(OnEveryDevice, RecordedStepsMatchEagerStepsBitForBit) {
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
  // The first steps overflow. Later, the scale grows again.
  same(adam, {.clip_norm = 0.5,
              .precision = {.dtype = DType::f16, .loss_scale = {.init_scale = 0x1p26, .growth_interval = 3}}});
  same(Sgd(model, {.lr = 0.1, .momentum = 0.9}),
       {.clip_norm = 0.5, .clip_value = 0.2, .accumulate = 2, .precision = {.dtype = DType::f16}});
}

TEST_P(OnEveryDevice, OverflowSkipsTheStepAndHalvesTheScale) {
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
      while (trainer.skipped() == skipped && skipped < 40) {  // until a step is not skipped
        EXPECT_EQ(values(trainer.model()), before);           // including running statistics
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
      // The result equals that of a trainer that started with the smaller scale, because skipped steps do not change
      // Adam's moments.
      options.precision.loss_scale.init_scale = std::ldexp(65536.0, -static_cast<int>(skipped));
      Trainer<M> other(model, optimiser, loss, options);
      for (int i = 0; i < 4; ++i) other.step({x, y});
      EXPECT_EQ(trainer.skipped(), skipped + other.skipped());
      expect_near(values(trainer.model()), values(other.model()), bound);
    }
}

TEST_P(OnEveryDevice, ScaleGrowsAfterFiniteSteps) {
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

TEST_P(OnEveryDevice, ReportsNonFiniteNumbersAtTheSmallestScale) {
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
    const std::uint64_t skips = precision.dtype == DType::f16 ? 2 : 0;  // skips at scales 4 and 2; then the scale is 1
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
  // The error contains the layer with the infinite 16-bit copy.
  auto large = setup(sequential(dense<6, 3>, relu, dense<3, 3>), {.seed = 1});
  large.get<2>().weight.assign(Array::full({3, 3}, 1e5));  // infinite in f16
  using M = decltype(large);
  Trainer<M> trainer(large, Sgd(large), [](const M& m, const Batch& b) { return mean(m(std::get<0>(b))); },
                     {.precision = {.dtype = DType::f16, .loss_scale = {.enabled = false}}});
  trainer.step({x, y});
  EXPECT_NE(text_of<NotFinite>([&] { trainer.check(); }).find("2.weight as f16"), std::string::npos);
}

TEST_P(OnEveryDevice, ResumedTrainingIsBitIdentical) {
  const Folder folder;
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

}  // namespace
}  // namespace tessera
