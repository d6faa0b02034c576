// SPDX-License-Identifier: Apache-2.0
// Trainers and fit beyond the usual: many shapes, parameters in two places, data that are mapped, early stopping that
// is resumed, tables; and that devices learn alike. On every device.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "tessera/grad/custom.h"
#include "tessera/nn/fit.h"
#include "tessera/nn/pack.h"
#include "tessera/ops/product.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"
#include "tests/support/small_network.h"

namespace tessera {
namespace {

using test::Batch;
using test::OnEveryDevice;
using test::values;
TESSERA_ON_EVERY_DEVICE();

TEST_P(OnEveryDevice, OfMoreThanFourShapesTheOldestIsDroppedAndMemoryGoesBack) {
  const test::Network model = test::network();
  const auto run = [&](bool recorded, const auto& look) {
    Trainer<test::Network> trainer(model, Adam(model, {.lr = 1e-2}), test::loss_of, {.recorded = recorded});
    const auto steps = [&](std::initializer_list<std::int64_t> sizes) {
      const std::uint64_t before = trainer.replays();
      for (const std::int64_t size : sizes)
        for (int i = 0; i < 3; ++i) trainer.step(test::data(size));
      trainer.check(), trim(GetParam());
      look(trainer.replays() - before, memory_stats(GetParam()).live_bytes);
    };
    steps({1200, 1300, 1400, 1500});  // run, recorded, replayed
    steps({1300});                    // now 1200 is the oldest
    steps({16, 17, 18});              // in place of 1200, 1400 and 1500
    steps({1300});                    // which is still there
    steps({1200});                    // in place of 16, and new
    steps({20, 21, 22, 23});
    return values(trainer.model());
  };
  std::vector<std::uint64_t> replays, live;
  const auto got =
      run(true, [&](std::uint64_t n, std::uint64_t bytes) { replays.push_back(n), live.push_back(bytes); });
  EXPECT_EQ(replays, (std::vector<std::uint64_t>{4, 3, 3, 3, 1, 4}));
  EXPECT_LT(live[2], live[0]) << "three large ones have gone";
  EXPECT_LT(live[5], live[0] / 2) << "all large ones have gone";
  EXPECT_EQ(got, run(false, [](std::uint64_t n, std::uint64_t) { EXPECT_EQ(n, 0u); }));
}

struct Tied {
  Parameter in, bias, out;  ///< of which `out` is `in` once more
  Array operator()(const Array& x) const { return matmul(tanh(matmul(x, in, {.bias = bias})), out); }
};
struct Single {
  Parameter in, bias;
  Array operator()(const Array& x) const { return matmul(tanh(matmul(x, in, {.bias = bias})), in); }
};

TEST_P(OnEveryDevice, AParameterInTwoPlacesIsOne) {
  const Array weight = random_normal({6, 6}, 3, 0, 0.4).eval(), bias = Array::zeros({6});
  const Batch data{test::data(16)};
  const auto make = [&] {
    Tied tied{weight.copy(), bias.copy(), {}};
    tied.out = tied.in;
    return setup(tied);
  };
  Tied tied = make();
  const Single single = setup(Single{weight.copy(), bias.copy()});
  const auto loss = [](const auto& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  // Its gradient is the sum, at the first place.
  const auto by = grad([&](const Tied& m) { return loss(m, data); })(tied);
  const auto want = grad([&](const Single& m) { return loss(m, data); })(single);
  EXPECT_EQ(by.in.to_vector<float>(), want.in.to_vector<float>());
  EXPECT_TRUE(by.out.empty());
  // Where the first place is frozen the second has it.
  Tied half = make();
  freeze(half, "in");
  const auto by_half = grad([&](const Tied& m) { return loss(m, data); })(half);
  EXPECT_TRUE(by_half.in.empty());
  EXPECT_FALSE(by_half.out.empty());
  // Arrays that are no model's have a gradient each.
  const auto [first, second] =
      grad([](const Array& a, const Array& b) { return sum(a * a * b); }, wrt<0, 1>)(bias, bias);
  EXPECT_EQ(first.size() + second.size(), 12);

  // Packed or not, an optimiser moves it once, and both places see it.
  Tied packed = make();
  pack(packed);
  EXPECT_EQ(packed.in.view().byte_offset, packed.out.view().byte_offset);
  EXPECT_EQ(packed.in.view().storage, packed.bias.view().storage);
  EXPECT_EQ(packed.out.to_vector<float>(), weight.to_vector<float>());
  Single alone = clone(single);
  Adam one(alone, {.lr = 0.1}), of_packed(packed, {.lr = 0.1}), of_tied(tied, {.lr = 0.1});
  for (int i = 0; i < 5; ++i) {
    one.step(alone, grad([&](const Single& m) { return loss(m, data); })(alone));
    of_packed.step(packed, grad([&](const Tied& m) { return loss(m, data); })(packed));
    of_tied.step(tied, grad([&](const Tied& m) { return loss(m, data); })(tied));
  }
  for (const Tied* m : {&tied, &packed}) {
    EXPECT_EQ(m->in.to_vector<float>(), alone.in.to_vector<float>());
    EXPECT_EQ(m->out.to_vector<float>(), alone.in.to_vector<float>());
  }
  // And a trainer, which packs; its checkpoint too.
  const test::Folder folder;
  const std::string path = folder / "tied.safetensors";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const auto of = [&]<class M>(const M& m) {
      return Trainer<M>(m, Adam(m, {.lr = 0.1}), [&](const M& n, const Batch& b) { return loss(n, b); },
                        {.clip_norm = 0.5, .precision = {.dtype = dtype}});
    };
    auto trains_single = of(single);
    auto trains_tied = of(make()), goes_on = of(make());
    for (int i = 0; i < 4; ++i) trains_single.step(data), trains_tied.step(data);
    trains_tied.save(path), goes_on.load(path);
    for (int i = 0; i < 4; ++i) trains_single.step(data), trains_tied.step(data), goes_on.step(data);
    for (auto* trainer : {&trains_tied, &goes_on}) {
      const Tied trained = trainer->trained();
      EXPECT_EQ(trained.in.to_vector<float>(), trains_single.model().in.to_vector<float>());
      EXPECT_EQ(trained.out.view().storage, trained.in.view().storage);
      EXPECT_EQ(trained.out.to_vector<float>(), trained.in.to_vector<float>());
    }
  }
  // One memory seen in two ways would be two.
  Tied turned{weight.copy(), bias.copy(), {}};
  turned.out = turned.in.transpose();
  turned = setup(turned);
  test::expect_throw<ArgumentError>([&] { pack(turned); },
                                    {"[pack]", "seen differently", "in = (6, 6)", "out = (6, 6)"});
}

TEST_P(OnEveryDevice, MappedBatchesComeAgainByTheirPosition) {
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
/// Without the seconds.
std::vector<std::string> told(const std::string& path) {
  std::vector<std::string> out = lines_of(path);
  for (std::string& line : out) line.erase(line.rfind(','));
  return out;
}

TEST_P(OnEveryDevice, ATableHasARowForEachFewStepsAndGoesOn) {
  const auto [x, y] = test::data(40);
  const test::Network model = test::network();
  const test::Folder folder;
  const auto run = [&, x = x, y = y](const std::string& name, std::uint64_t steps, bool resume) {
    const std::string checkpoint = folder / (name + ".safetensors");
    const auto keep = [&, checkpoint](std::uint64_t step) {
      if (step == 7) std::filesystem::copy_file(checkpoint, folder / "of step 6");
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
                .callbacks = {.step = name == "part" && !resume ? std::function<bool(std::uint64_t)>(keep) : nullptr},
                .csv = folder / (name + ".csv"),
                .csv_every = 2,
                .checkpoint = checkpoint,
                .checkpoint_every = 3,
                .resume = resume});
  };
  const auto whole = run("whole", 12, false);
  const auto rows = told(folder / "whole.csv");
  ASSERT_EQ(rows.size(), 9u);  // steps 2, 4, 5 (an epoch's end), 6, 8, 10 and 12
  EXPECT_EQ(rows[0], "step,epoch,loss,rate,validation_loss");
  std::vector<std::string> steps;
  for (const std::string& row : rows) steps.push_back(row.substr(0, row.find(',')) + (row.ends_with(',') ? "" : "+"));
  EXPECT_EQ(steps, (std::vector<std::string>{"step+", "2", "4+", "5+", "6", "8+", "10", "10+", "12+"}));
  // Cut behind a checkpoint: what was told after it is told again.
  run("part", 7, false);
  EXPECT_EQ(told(folder / "part.csv").back().substr(0, 2), "7,");
  std::filesystem::rename(folder / "of step 6", folder / "part.safetensors");
  const auto resumed = run("part", 12, true);
  EXPECT_EQ(values(resumed.model), values(whole.model));
  EXPECT_EQ(told(folder / "part.csv"), rows);
}

TEST_P(OnEveryDevice, EarlyStoppingGoesOnWhereItWasAfterAResume) {
  const auto [x, y] = test::data(16);
  const test::Network model = test::network();
  const test::Folder folder;
  // The third validation is the best, and three that are worse end it.
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
    // It has ended: nothing more is trained.
    const auto over = run(name, 20, true);
    EXPECT_EQ(over.result.end, FitResult::End::early);
    EXPECT_EQ(over.result.steps, resumed.result.steps);
    EXPECT_EQ(values(over.model), values(whole.model));
  }
  // Its checkpoint is one of a trainer, and of a model, all the same.
  Trainer<test::Network> trainer(model, Adam(model), test::loss_of);
  trainer.load(folder / "whole");
  EXPECT_EQ(trainer.steps(), 12u);
}

TEST_P(OnEveryDevice, LearnsAsTheCpuDoesAndToTheSameBitsAgain) {
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
