// SPDX-License-Identifier: Apache-2.0
// Less common uses of trainers and fit(): many shapes and dtypes, mapped data, resumed early stopping, and CSV files.
// Also checks that results are equal on all devices.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "tessera/nn/fit.h"
#include "tests/nn/small_network.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::Batch;
using test::OnEveryDevice;
using test::values;
TESSERA_ON_EVERY_DEVICE();

TEST_P(OnEveryDevice, EvictsTheLeastRecentlyUsedShapeAndFreesItsMemory) {
  const test::Network model = test::network();
  const auto run = [&](bool recorded, const auto& look) {
    Trainer<test::Network> trainer(model, Adam(model, {.lr = 1e-2}), test::loss_of,
                                   {.recorded = recorded, .shapes = 4});
    const auto steps = [&](std::initializer_list<std::int64_t> sizes) {
      const std::uint64_t before = trainer.replays();
      for (const std::int64_t size : sizes)
        for (int i = 0; i < 4; ++i) trainer.step(test::data(size));
      trainer.check(), trim(GetParam());
      look(trainer.replays() - before, memory_stats(GetParam()).live_bytes);
    };
    steps({1200, 1300, 1400, 1500});  // each shape is run, recorded twice, and replayed
    EXPECT_EQ(trainer.not_recorded().empty(), recorded);
    steps({1300});        // compared, replayed twice, compared; now 1200 is the least recently used shape
    steps({16, 17, 18});  // evict 1200, 1400 and 1500
    steps({1300});        // still cached
    steps({1200});        // evicts 16; recorded again
    steps({20, 21, 22, 23});
    if (recorded)
      test::expect_contains(trainer.not_recorded(),
                            {"more shapes than the 4", "8 recordings", "TrainerOptions::shapes"});
    return values(trainer.model());
  };
  std::vector<std::uint64_t> replays, live;
  const auto got =
      run(true, [&](std::uint64_t n, std::uint64_t bytes) { replays.push_back(n), live.push_back(bytes); });
  EXPECT_EQ(replays, (std::vector<std::uint64_t>{4, 2, 3, 4, 1, 4}));
  EXPECT_LT(live[2], live[0]) << "three large ones were evicted";
  EXPECT_LT(live[5], live[0] / 2) << "all large ones were evicted";
  EXPECT_EQ(got, run(false, [](std::uint64_t n, std::uint64_t) { EXPECT_EQ(n, 0u); }));
}

TEST_P(OnEveryDevice, ReplaysAlternatingShapes) {
  const test::Network model = test::network();
  const auto run = [&](bool recorded) {
    Trainer<test::Network> trainer(model, Adam(model, {.lr = 1e-2}), test::loss_of, {.recorded = recorded});
    for (int round = 0; round < 5; ++round)
      for (std::int64_t size = 4; size < 16; ++size) trainer.step(test::data(size));
    EXPECT_EQ(trainer.not_recorded().empty(), recorded);
    EXPECT_EQ(trainer.replays(), recorded ? 12u : 0u);  // each shape is run, recorded twice, replayed and compared
    return values(trainer.model());
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(OnEveryDevice, LossHasTheDtypeOfTheBatch) {
  if (!device_info(GetParam()).can.f64) GTEST_SKIP() << "the device has no f64";
  const auto model = setup(sequential(dense<6, 1>), {.seed = 3});
  using M = std::remove_const_t<decltype(model)>;
  const Array x = std::get<0>(test::data(8)), y = sum(x, {1}, true).eval();
  const auto run = [&](bool recorded) {
    Trainer<M> trainer(model, Sgd(model, {.lr = 0.1}),
                       [](const M& m, const Batch& b) { return mse_loss(m(std::get<0>(b)), std::get<1>(b)); },
                       {.recorded = recorded});
    std::vector<double> losses;
    double all = 0;
    for (int i = 0; i < 12; ++i) {
      const DType of = i % 3 == 1 ? DType::f64 : DType::f32;
      const Array loss = trainer.step({x, y.astype(of)});
      EXPECT_EQ(loss.dtype(), of);
      losses.push_back(loss.astype(DType::f64).item<double>()), all += losses.back() / 12;
    }
    EXPECT_EQ(trainer.replays() > 0, recorded);
    EXPECT_NEAR(trainer.mean_loss(), all, 1e-5);
    return losses;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(OnEveryDevice, MeanLossIncludesOnlyFiniteSteps) {
  const test::Network model = test::network();
  Trainer<test::Network> trainer(model, Sgd(model, {.lr = 0}), test::loss_of);
  const auto [x, y] = test::data(8);
  double all = 0;
  for (int i = 0; i < 4; ++i) all += trainer.step({x, y}).item<float>();
  trainer.step({x * std::numeric_limits<double>::quiet_NaN(), y});
  for (int i = 0; i < 3; ++i) trainer.step({x, y});
  EXPECT_NEAR(trainer.mean_loss(), all / 4, 1e-5);
  EXPECT_TRUE(std::isnan(trainer.mean_loss()));
  EXPECT_THROW(trainer.check(), NotFinite);
  EXPECT_EQ(trainer.steps(), 4u);
  const float next = trainer.step({x, y}).item<float>();
  EXPECT_NEAR(trainer.mean_loss(), next, 1e-5);
}

TEST_P(OnEveryDevice, FailedUpdateIsNotCounted) {
  struct Two {
    Parameter a, b;
  };
  Two model = setup(Two{Array::ones({2}), Array::ones({3})});
  Adam optimiser(model, {.lr = 0.1});
  const Two good{Array::ones({2}), Array::ones({3})}, bad{Array::ones({2}), Array::ones({4})};
  optimiser.step(model, good);
  test::expect_throw<ShapeError>([&] { optimiser.step(model, bad); }, {"[optimiser.step]", "path = b", "(4,)"});
  EXPECT_EQ(optimiser.steps(), 1u);
  MixedPrecision precision(model, {.dtype = DType::f16});
  const auto by = precision.value_and_grad([](const Two& m) {
    return sum(m.a.astype(DType::f32)) + sum(m.b.astype(DType::f32)) * std::numeric_limits<double>::infinity();
  })(model);
  EXPECT_THROW(precision.step(optimiser, model, bad), ShapeError);
  EXPECT_EQ(optimiser.steps(), 1u);
  const auto before = values(model);
  precision.step(optimiser, model, by.second);  // the infinite loss is still recorded
  EXPECT_EQ(precision.skipped(), 1u);
  EXPECT_EQ(values(model), before);
}

TEST_P(OnEveryDevice, MappedBatchesDependOnlyOnThePosition) {
  const auto [x, y] = test::data(20);
  const auto all = [&, x = x, y = y] {
    return map_batches(batches(x, y, {.size = 8, .shuffle = true, .seed = 3}), [](const Batch& b, DataPosition at) {
      const auto& [images, classes] = b;
      return Batch{images + random_normal(images.shape(), 100 * at.epoch + at.batch, 0, 0.1), classes};
    });
  };
  auto whole = all();
  EXPECT_EQ(whole.size(), 3u);
  std::vector<std::vector<float>> seen;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& [images, classes] : whole) seen.push_back(images.template to_vector<float>());
  ASSERT_EQ(seen.size(), 6u);
  EXPECT_EQ(whole.position(), (DataPosition{2, 0}));
  auto part = all();
  part.set_position({1, 1});
  std::size_t at = 4;
  for (const auto& [images, classes] : prefetch(part, GetParam()))
    EXPECT_EQ(images.template to_vector<float>(), seen[at++]);
  EXPECT_EQ(at, 6u);
  EXPECT_THROW(part.set_position({0, 3}), ArgumentError);

  const test::Folder folder;
  const test::Network model = test::network();
  const auto options = [&](std::uint64_t steps, bool resume) {
    return FitOptions<test::Network, Batch>{.loss = test::loss_of,
                                            .steps = steps,
                                            .checkpoint = folder / (resume || steps < 8 ? "part" : "whole"),
                                            .resume = resume};
  };
  const auto once = fit(model, all(), options(8, false));
  fit(model, all(), options(4, false));
  EXPECT_EQ(values(fit(model, all(), options(8, true)).model), values(once.model));
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}
/// Returns the lines of the CSV file without the column of seconds.
std::vector<std::string> told(const std::string& path) {
  std::vector<std::string> out = lines_of(path);
  for (std::string& line : out) line.erase(line.rfind(','));
  return out;
}

TEST_P(OnEveryDevice, CsvHasPeriodicRowsAndContinuesAfterResume) {
  const auto [x, y] = test::data(40);
  const test::Network model = test::network();
  const test::Folder folder;
  const auto run = [&, x = x, y = y](const std::string& name, std::uint64_t steps, bool resume) {
    const std::string checkpoint = folder / (name + ".safetensors");
    const auto keep = [&, checkpoint, steps](std::uint64_t step) {
      if (step == steps) std::filesystem::copy_file(checkpoint, folder / ("before step " + std::to_string(step)));
      return true;
    };
    const auto pause = [](std::uint64_t step) {  // long enough for a progress report between two rows
      if (step == 8) std::this_thread::sleep_for(std::chrono::milliseconds(510));
      return true;
    };
    return fit(model, batches(x, y, {.size = 8, .shuffle = true}),
               {.loss = test::loss_of,
                .optimiser = Adam(model, {.lr = 1e-2}),
                .steps = steps,
                .validation =
                    [&](const test::Network& m) {
                      return evaluate(m, batches(x, y, {.size = 16}), {{"loss", test::loss_of}});
                    },
                .validate_every = 4,
                .callbacks = {.step = resume           ? std::function<bool(std::uint64_t)>(pause)
                                      : name == "part" ? keep
                                                       : std::function<bool(std::uint64_t)>()},
                .csv = folder / (name + ".csv"),
                .csv_every = 2,
                .checkpoint = checkpoint,
                .checkpoint_every = 3,
                .resume = resume});
  };
  const auto whole = run("whole", 12, false);
  const auto rows = told(folder / "whole.csv");
  ASSERT_EQ(rows.size(), 9u);  // steps 2, 4, 5 (end of an epoch), 6, 8, 10 and 12
  EXPECT_EQ(rows[0], "step,epoch,loss,rate,validation_loss");
  std::vector<std::string> steps;
  for (const std::string& row : rows) steps.push_back(row.substr(0, row.find(',')) + (row.ends_with(',') ? "" : "+"));
  EXPECT_EQ(steps, (std::vector<std::string>{"step+", "2", "4+", "5+", "6", "8+", "10", "10+", "12+"}));
  // Stops after the checkpoint of step 6, or of step 3, which is between two rows. After the resume, later rows are
  // written again.
  for (const char* const cut : {"7", "4"}) {
    std::filesystem::remove(folder / "part.csv");
    run("part", static_cast<std::uint64_t>(*cut - '0'), false);
    EXPECT_EQ(told(folder / "part.csv").back().substr(0, 2), std::string(cut) + ",");
    std::filesystem::rename(folder / (std::string("before step ") + cut), folder / "part.safetensors");
    const auto resumed = run("part", 12, true);
    EXPECT_EQ(values(resumed.model), values(whole.model));
    EXPECT_EQ(told(folder / "part.csv"), rows) << cut;
  }
}

TEST_P(OnEveryDevice, EarlyStoppingContinuesAfterResume) {
  const auto [x, y] = test::data(16);
  const test::Network model = test::network();
  const test::Folder folder;
  // The third validation is the best one. After three worse ones, training ends.
  const std::vector<double> losses = {1, 0.5, 0.25, 0.3, 0.26, 0.4, 0.1};
  std::size_t validations = 0;
  const auto run = [&, x = x, y = y](const std::string& name, std::uint64_t epochs, bool resume) {
    return fit(model, batches(x, y, {.size = 8}),
               {.loss = test::loss_of,
                .optimiser = Adam(model, {.lr = 1e-2}),
                .epochs = epochs,
                .validation =
                    [&](const test::Network&) {
                      return Figures{{"accuracy", 0.1}, {"loss", losses.at(validations++)}};
                    },
                .early_stopping = EarlyStopping{.patience = 3},
                .checkpoint = folder / name,
                .resume = resume});
  };
  validations = 0;
  const auto whole = run("whole", 20, false);
  EXPECT_EQ(whole.result.end, FitResult::End::early);
  EXPECT_EQ(whole.result.epochs, 6u);
  EXPECT_EQ(figure(whole.result.figures, "loss"), 0.25);
  for (const std::uint64_t cut : {2u, 3u, 5u}) {
    SCOPED_TRACE(cut);
    const std::string name = "cut" + std::to_string(cut);
    validations = 0;
    run(name, cut, false);
    const auto resumed = run(name, 20, true);
    EXPECT_EQ(resumed.result.end, FitResult::End::early);
    EXPECT_EQ(resumed.result.epochs, 6u);
    EXPECT_EQ(resumed.result.figures, whole.result.figures);
    EXPECT_EQ(values(resumed.model), values(whole.model)) << "the best";
    // The run has ended, so there are no further steps.
    const auto over = run(name, 20, true);
    EXPECT_EQ(over.result.end, FitResult::End::early);
    EXPECT_EQ(over.result.steps, resumed.result.steps);
    EXPECT_EQ(values(over.model), values(whole.model));
  }
  // Stops after the last step of an epoch, when the checkpoint and the validation are complete. After the resume, the
  // validation is neither repeated nor omitted.
  for (const std::uint64_t every : {1u, 2u, 0u}) {
    SCOPED_TRACE(every);
    std::uint64_t most = 0;
    const auto steps = [&, x = x, y = y](const std::string& name, bool resume) {
      return fit(model, batches(x, y, {.size = 8}),
                 {.loss = test::loss_of,
                  .optimiser = Adam(model, {.lr = 1e-2}),
                  .epochs = 20,
                  .steps = most,
                  .validation =
                      [&](const test::Network&) {
                        return Figures{{"accuracy", 0.1}, {"loss", losses.at(validations++ % losses.size())}};
                      },
                  .validate_every = every,
                  .early_stopping = EarlyStopping{.patience = 3},
                  .checkpoint = folder / name,
                  .checkpoint_every = 1,
                  .resume = resume});
    };
    validations = 0, most = 0;
    const auto at_once = steps("at once", false);
    const std::size_t made = validations;
    std::filesystem::remove(folder / "bit by bit");
    validations = 0;
    for (most = 1; most < 41; ++most) {
      const auto part = steps("bit by bit", true);
      if (part.result.end != FitResult::End::early) continue;
      EXPECT_EQ(part.result.steps, at_once.result.steps);
      EXPECT_EQ(part.result.figures, at_once.result.figures);
      EXPECT_EQ(values(part.model), values(at_once.model));
      break;
    }
    EXPECT_LT(most, 41u);
    EXPECT_EQ(validations, made);
  }
  // The checkpoint can be loaded by a trainer and by a model.
  Trainer<test::Network> trainer(model, Adam(model), test::loss_of);
  trainer.load(folder / "whole");
  EXPECT_EQ(trainer.steps(), 12u);
}

TEST_P(OnEveryDevice, LearnsLikeTheCpuWithBitIdenticalReruns) {
  const auto model = setup(sequential(dense<6, 24>, BatchNorm{}, relu, dense<24, 3>), {.seed = 3, .input = {6}});
  using M = std::remove_const_t<decltype(model)>;
  const auto train = [&](Device device) {
    const DeviceScope scope(device);
    const M here = to(model, device);
    const auto [x, y] = test::data(96);
    Trainer<M> trainer(here, Adam(here, {.lr = 3e-3}),
                       [](const M& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); });
    auto all = batches(x, y, {.size = 32, .shuffle = true, .seed = 1});
    std::vector<float> losses;
    while (losses.size() < 200)
      for (const auto& batch : all) losses.push_back(trainer.step(batch).template item<float>());
    trainer.check();
    return std::pair(losses, values(trainer.model()));
  };
  const auto cpu = train(Device{Backend::cpu, 0}), here = train(GetParam());
  for (const std::size_t step : {1, 50, 199}) EXPECT_NEAR(here.first[step], cpu.first[step], 1e-3) << step;
  EXPECT_LT(here.first[199], 0.5f * here.first[0]);
  EXPECT_EQ(train(GetParam()), here);
}

}  // namespace
}  // namespace tessera
