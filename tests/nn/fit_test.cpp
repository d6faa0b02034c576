// SPDX-License-Identifier: Apache-2.0
// Trainers and fit() on every device: batches, recorded steps, non-finite numbers and checkpoints.
#include "tessera/nn/fit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "tessera/nn/saved_model.h"
#include "tests/nn/small_network.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::Batch;
using test::data;
using test::loss_of;
using test::network;
using test::OnEveryDevice;
using test::values;
using Model = test::Network;
TESSERA_ON_EVERY_DEVICE();

std::string file(const std::string& name) {
  return ::testing::TempDir() + "fit_test_" + std::to_string(getpid()) + name;
}

TEST_P(OnEveryDevice, BatchOrderDependsOnlyOnSeedAndEpoch) {
  const Array x = Array::arange(10, 0, 1, DType::i32), y = x * 2;
  const auto epoch = [](auto& all) {
    std::vector<std::int32_t> seen;
    for (const auto& [a, b] : all) {
      const auto u = a.template to_vector<std::int32_t>(), v = b.template to_vector<std::int32_t>();
      for (std::size_t i = 0; i < u.size(); ++i) EXPECT_EQ(v[i], 2 * u[i]);
      seen.insert(seen.end(), u.begin(), u.end());
    }
    return seen;
  };
  auto plain = batches(x, y, {.size = 4});
  std::vector<std::int32_t> counted(10);
  std::iota(counted.begin(), counted.end(), 0);
  EXPECT_EQ(epoch(plain), counted);
  EXPECT_EQ(plain.size(), 3u);
  EXPECT_EQ(plain.position(), (DataPosition{1, 0}));
  EXPECT_EQ(batches(x, y, {.size = 4, .drop_last = true}).size(), 2u);

  auto mixed = batches(x, y, {.size = 4, .shuffle = true, .seed = 7});
  const auto one = epoch(mixed), two = epoch(mixed);
  EXPECT_NE(one, two);
  EXPECT_EQ(std::set<std::int32_t>(one.begin(), one.end()).size(), 10u);
  mixed.set_position({1, 1});
  const auto rest = epoch(mixed);
  EXPECT_EQ(rest, std::vector<std::int32_t>(two.begin() + 4, two.end()));
  auto ahead_of = batches(x, y, {.size = 4, .shuffle = true, .seed = 7});
  auto ahead = prefetch(ahead_of, GetParam());
  EXPECT_EQ(epoch(ahead), one);

  EXPECT_THROW(batches(x, y.slice(0, 0, 9), {.size = 4}), ShapeError);
  EXPECT_THROW(batches(x.slice(0, 0, 0), {.size = 4}), ShapeError);
  EXPECT_THROW(batches(x, y, {}), ArgumentError);
  EXPECT_THROW(batches(x, y, {.size = 11, .drop_last = true}), ArgumentError);
  EXPECT_THROW(mixed.set_position({0, 3}), ArgumentError);
}

/// Runs training steps, recorded or eager. The batches have 8 samples, except for the last one, which has 4.
template <class O>
std::pair<std::vector<std::vector<float>>, std::vector<float>> trained(const O& optimiser, TrainerOptions options,
                                                                       std::uint64_t steps) {
  const auto [x, y] = data(20);
  const Model model = network();
  Trainer<Model> trainer(model, optimiser, loss_of, options);
  auto all = batches(x, y, {.size = 8, .shuffle = true, .seed = 1});
  std::vector<float> losses;
  while (trainer.steps() < steps)
    for (const auto& batch : all) {
      losses.push_back(trainer.step(batch).template item<float>());
      if (trainer.steps() == steps) break;
    }
  trainer.check();
  if (options.recorded) {
    EXPECT_EQ(trainer.not_recorded(), "");
    EXPECT_GT(trainer.replays(), 0u);
  } else {
    EXPECT_NE(trainer.not_recorded(), "");
    EXPECT_EQ(trainer.replays(), 0u);
  }
  return {values(trainer.model()), losses};
}

TEST_P(OnEveryDevice, RecordedStepsMatchEagerStepsBitForBit) {
  const Model model = network();
  const auto same = [](const auto& optimiser, TrainerOptions options, std::uint64_t steps) {
    TrainerOptions eager = options;
    eager.recorded = false;
    EXPECT_EQ(trained(optimiser, options, steps), trained(optimiser, eager, steps));
  };
  same(Adam(model, {.lr = cosine_rate(1e-2, {.steps = 20})}), {.seed = 2}, 14);
  same(Sgd(model, {.lr = 0.1, .momentum = 0.9}), {.clip_norm = 0.5, .clip_value = 0.2, .accumulate = 2}, 16);
  same(Sgd(model, {.lr = 0.1}), {.check_finite = false}, 9);
}

TEST_P(OnEveryDevice, AccumulationUpdatesWithTheMeanGradient) {
  const auto [x, y] = data(16);
  const auto model = setup(sequential(dense<6, 3>), {.seed = 3});
  using M = std::remove_const_t<decltype(model)>;
  const auto loss = [](const M& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  Trainer<M> whole(model, Sgd(model, {.lr = 0.5}), loss),
      parts(model, Sgd(model, {.lr = 0.5}), loss, {.accumulate = 2});
  for (int i = 0; i < 6; ++i) {
    whole.step({x, y});
    for (const auto& half : batches(x, y, {.size = 8})) parts.step(half);
  }
  EXPECT_EQ(whole.updates(), parts.updates());
  const auto a = values(whole.model()), b = values(parts.model());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) EXPECT_NEAR(a[i][j], b[i][j], 1e-5);
}

TEST_P(OnEveryDevice, NonFiniteStepChangesNothing) {
  const auto [x, y] = data(8);
  const Model model = network();
  Trainer<Model> trainer(model, Adam(model), [](const Model& m, const Batch& b) {
    const Array logits = m(std::get<0>(b));
    return cross_entropy(logits, std::get<1>(b)) + mean(log(abs(std::get<0>(b)).slice(0, 0, 1)) * 1e-9);
  });
  for (int i = 0; i < 4; ++i) trainer.step({x, y});
  const auto before = values(trainer.model());
  trainer.step({Array::zeros({8, 6}), y});
  for (int i = 0; i < 3; ++i) trainer.step({x, y});
  EXPECT_EQ(values(trainer.model()), before);
  try {
    trainer.check();
    FAIL() << "no error";
  } catch (const NotFinite& e) {
    EXPECT_EQ(e.step(), 5u);
    EXPECT_NE(std::string(e.what()).find("log"), std::string::npos) << e.what();
  }
  EXPECT_EQ(trainer.steps(), 4u);
  EXPECT_EQ(trainer.updates(), 4u);
  EXPECT_EQ(values(trainer.model()), before);
  trainer.check();
  trainer.step({x, y});
  EXPECT_NE(values(trainer.model()), before);
  EXPECT_EQ(trainer.steps(), 5u);
}

TEST_P(OnEveryDevice, ResumedTrainingMatchesUninterruptedTraining) {
  const auto [x, y] = data(20);
  const Model model = network();
  const std::string path = file("checkpoint");
  const auto options = [&](std::uint64_t steps, bool resume) {
    FitOptions<Model, Batch> o{.loss = loss_of, .optimiser = Adam(model, {.lr = 1e-2}), .steps = steps};
    if (resume || steps < 20) o.checkpoint = path, o.resume = resume;
    return o;
  };
  const auto all = [&] { return batches(x, y, {.size = 8, .shuffle = true, .seed = 1}); };
  const auto whole = fit(model, all(), options(20, false));
  for (const std::uint64_t cut : {7u, 9u}) {
    fit(model, all(), options(cut, false));
    const auto resumed = fit(model, all(), options(20, true));
    EXPECT_EQ(resumed.result.steps, 20u);
    EXPECT_EQ(values(whole.model), values(resumed.model)) << cut;
  }
  Model loaded = network();
  load_model(loaded, path);
  EXPECT_EQ(values(loaded), values(whole.model));

  const auto other =
      setup(sequential(dense<6, 12>, BatchNorm{}, relu, Dropout{}, dense<12, 4>), {.seed = 3, .input = {6}});
  using M = std::remove_const_t<decltype(other)>;
  Trainer<M> wrong(other, Adam(other), [](const M& m, const Batch& b) { return sum(m(std::get<0>(b))); }, {.seed = 9});
  const auto before = values(wrong.model());
  try {
    wrong.load(path);
    FAIL() << "no error";
  } catch (const ArgumentError& e) {
    for (const char* part : {"seed is 0", "model.4.weight", "model.4.bias", "optimiser.m"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << " in " << e.what();
  }
  EXPECT_EQ(values(wrong.model()), before);
  save_model(model, path);
  EXPECT_THROW(wrong.load(path), FormatError);
  std::filesystem::remove(path);
}

TEST_P(OnEveryDevice, FitLeavesTheGivenModelUnchangedAndReportsProgress) {
  const auto [x, y] = data(40);
  const Model model = network();
  const auto before = values(model);
  const std::string csv = file("csv");
  int told = 0;
  const auto [fitted, result] =
      fit(model, batches(x, y, {.size = 8, .shuffle = true}),
          {.loss = loss_of,
           .optimiser = Adam(model, {.lr = 1e-2}),
           .epochs = 6,
           .validation =
               [&, x = x, y = y](const Model& m) {
                 return evaluate(m, batches(x, y, {.size = 16}),
                                 {{"loss", loss_of}, {"accuracy", [](const Model& n, const Batch& b) {
                                                        return accuracy(n(std::get<0>(b)), std::get<1>(b));
                                                      }}});
               },
           .callbacks = {.progress = [&](const FitProgress& p) { told += p.over ? 1 : 0; }},
           .csv = csv});
  EXPECT_EQ(values(model), before);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(result.steps, 30u);
  EXPECT_EQ(result.epochs, 6u);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_GT(figure(result.figures, "accuracy"), 0.4);
  EXPECT_THROW(figure(result.figures, "f1"), ArgumentError);
  EXPECT_EQ(predict(fitted, x, {.size = 16}).shape(), (Shape{40, 3}));
  std::ifstream rows(csv);
  std::string line;
  std::getline(rows, line);
  EXPECT_EQ(line, "step,epoch,loss,rate,validation_loss,validation_accuracy,seconds");
  int count = 0;
  while (std::getline(rows, line)) ++count;
  EXPECT_EQ(count, 6);
  std::filesystem::remove(csv);
  EXPECT_THROW(fit(model, batches(x, y, {.size = 8}), {.loss = loss_of}), ArgumentError);
  EXPECT_THROW(fit(model, batches(x, y, {.size = 8}), {.epochs = 1}), ArgumentError);
}

TEST_P(OnEveryDevice, EarlyStoppingReturnsTheBestModel) {
  const auto [x, y] = data(16);
  const Model model = network();
  int calls = 0;
  std::vector<std::vector<float>> best;
  const auto [fitted, result] = fit(model, batches(x, y, {.size = 8}),
                                    {.loss = loss_of,
                                     .epochs = 20,
                                     .validation =
                                         [&](const Model& m) {
                                           if (++calls == 3) best = values(m);
                                           return Figures{{"loss", calls == 3 ? 0.5 : 1.0}};
                                         },
                                     .early_stopping = EarlyStopping{.patience = 2}});
  EXPECT_EQ(result.end, FitResult::End::early);
  EXPECT_EQ(result.epochs, 5u);
  EXPECT_EQ(values(fitted), best);
}

TEST_P(OnEveryDevice, UnrecordableStepsRunEagerlyAndReportTheReason) {
  const auto [x, y] = data(8);
  const Model model = network();
  const auto run = [&, x = x, y = y](bool looks) {
    Trainer<Model> trainer(model, Adam(model), [=](const Model& m, const Batch& b) {
      const Array loss = loss_of(m, b);
      return looks && loss.item<float>() < 0 ? loss * 2 : loss;
    });
    for (int i = 0; i < 4; ++i) trainer.step({x, y});
    EXPECT_EQ(trainer.not_recorded().empty(), !looks);
    return values(trainer.model());
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(OnEveryDevice, RecordedStepsNeedNoMoreMemoryThanEagerSteps) {
  const auto [x, y] = data(64);
  const auto model = setup(sequential(dense<6, 256>, relu, dense<256, 256>, relu, dense<256, 3>), {.seed = 3});
  using M = std::remove_const_t<decltype(model)>;
  const auto peak = [&, x = x, y = y](bool recorded) {
    Trainer<M> trainer(model, Adam(model),
                       [](const M& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); },
                       {.recorded = recorded});
    std::uint64_t most = 0;
    for (int i = 0; i < 5; ++i) {
      trainer.step({x, y});
      trainer.check();
      trim(GetParam());
      reset_peak_memory(GetParam());
      trainer.step({x, y});
      trainer.check();
      most = memory_stats(GetParam()).peak_bytes;
    }
    return most;
  };
  const std::uint64_t eager = peak(false), recorded = peak(true);
  // Recordings keep their memory blocks. Each may be up to a page larger than a block of the pool.
  EXPECT_LE(recorded, eager + eager / 20);
}

}  // namespace
}  // namespace tessera
