// SPDX-License-Identifier: Apache-2.0
// Failures of trainers on every device: lack of memory, non-finite numbers, truncated files, and files of other models.
// Also tests several trainers at the same time.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tessera/array/host_bytes.h"
#include "tessera/nn/fit.h"
#include "tessera/nn/images.h"
#include "tessera/nn/saved_model.h"
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

/// Returns the state of a trainer as the bytes of its checkpoint.
std::string kept_by(TrainerBase& trainer, const test::Folder& folder) {
  trainer.save(folder / "kept.safetensors");
  return test::text_of(folder / "kept.safetensors");
}

auto wide_network() {
  return setup(sequential(dense<6, 64>, BatchNorm{}, tanh, Dropout{.p = 0.1}, dense<64, 64>, tanh, dense<64, 3>),
               {.seed = 3, .input = {6}});
}
using Wide = decltype(wide_network());

TEST_P(OnEveryDevice, TrainerContinuesAfterOutOfMemoryInTheBackwardPass) {
  const Device device = GetParam();
  const Batch small = test::data(16), large = test::data(2048);
  const Wide model = wide_network();
  const test::Folder folder;
  bool looked = false, forward = false;
  std::uint64_t after_forward = 0;
  const auto loss = [&](const Wide& m, const Batch& b) {
    Array y = cross_entropy(m(std::get<0>(b)), std::get<1>(b));
    if (looked) y.eval(), forward = true, after_forward = memory_stats(device).peak_bytes;
    return y;
  };
  const auto trainer_of = [&](bool recorded) {
    return Trainer<Wide>(model, Adam(model, {.lr = 1e-2}), loss, {.seed = 4, .recorded = recorded});
  };
  const auto peak = [&] {
    trim(device), reset_peak_memory(device);
    return memory_stats(device).live_bytes;
  };
  for (const bool recorded : {false, true}) {
    SCOPED_TRACE(recorded ? "recorded" : "eager");
    Trainer<Wide> trainer = trainer_of(recorded), other = trainer_of(recorded);
    for (Trainer<Wide>* t : {&trainer, &other}) {
      t->step(large);
      for (int i = 0; i < 3; ++i) t->step(small);
      t->check();
    }
    const std::string before = kept_by(trainer, folder);
    // Measures how much memory a step of a separate eager trainer needs: up to the loss, and in total.
    std::uint64_t of_forward = 0, of_all = 0;
    {
      Trainer<Wide> probe = trainer_of(false);
      probe.step(large), probe.check();
      looked = true;
      const std::uint64_t live = peak();
      probe.step(large), probe.check();
      looked = false;
      of_forward = after_forward - live, of_all = memory_stats(device).peak_bytes - live;
    }
    ASSERT_GT(of_all, of_forward);
    int in_walk = 0;
    for (int part = 0; part <= 8; ++part) {
      trim(device);
      const std::uint64_t live = memory_stats(device).live_bytes;
      set_memory_limit(device,
                       live + of_forward / 2 + (of_all - of_forward / 2) * static_cast<std::uint64_t>(part) / 9);
      looked = true, forward = false;
      const std::string text = test::text_of<OutOfMemory>([&] { trainer.step(large), trainer.check(); });
      set_memory_limit(device, 0);
      looked = false;
      EXPECT_TRUE(test::holds(text, "set_memory_limit"));
      in_walk += forward;
      EXPECT_LE(memory_stats(device).live_bytes, live + live / 50) << "the memory of the step is freed";
      EXPECT_EQ(trainer.steps(), 4u);
      ASSERT_EQ(kept_by(trainer, folder), before) << part;
    }
    EXPECT_GT(in_walk, 0) << "forward takes " << of_forward << ", all " << of_all;
    for (Trainer<Wide>* t : {&trainer, &other}) {
      for (int i = 0; i < 3; ++i) t->step(small);
      t->step(large);
      t->check();
    }
    EXPECT_EQ(kept_by(trainer, folder), kept_by(other, folder));
    if (!recorded) continue;
    // After an out-of-memory error, recording is tried again later.
    test::expect_contains(trainer.not_recorded(), {"set_memory_limit"});
    for (int i = 0; i < 16; ++i) trainer.step(small), other.step(small);
    const std::uint64_t replays = trainer.replays();
    for (int i = 0; i < 3; ++i) trainer.step(large), other.step(large);
    EXPECT_EQ(trainer.not_recorded(), "");
    EXPECT_EQ(trainer.replays(), replays + 1);
    EXPECT_EQ(kept_by(trainer, folder), kept_by(other, folder));
  }
}

/// Returns NaN for negative numbers, and has a non-finite gradient at 0.
struct Root {
  Array operator()(const Array& x) const { return sqrt(x); }
};

TEST_P(OnEveryDevice, NonFiniteStepIsReportedWithItsLayerAndChangesNothing) {
  struct Net {
    Dense first;
    BatchNorm norm;
    Dense second;
    Root root;
    Dense last;
    Array operator()(const Array& x) const {
      const Array h = norm(first(x));
      return last(root(relu(second(h)) * 0 + sum(x, {1}, true)));
    }
  };
  const Net model = setup(Net{{6, 8}, {.channels = 8}, {8, 8}, {}, {8, 3}}, {.seed = 2});
  const test::Folder folder;
  const Array y = std::get<1>(test::data(8)), good = Array::full({8, 6}, 0.5).eval();
  for (const bool recorded : {true, false}) {
    Trainer<Net> trainer(model, Adam(model),
                         [](const Net& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); },
                         {.recorded = recorded});
    for (std::uint64_t i = 0; i < 4; ++i) trainer.step({good, y});
    trainer.check();
    const std::string before = kept_by(trainer, folder);
    struct Fault {
      double in;
      std::vector<std::string_view> parts;
    };
    const Fault all[] = {
        {-1, {"[Trainer.step]", "step = 5", "first NaN is computed by sqrt", "layer second", "state before this step"}},
        {0, {"step = 5", "the gradient of", "is not finite"}}};
    for (const Fault& fault : all) {
      SCOPED_TRACE(fault.in);
      trainer.step({Array::full({8, 6}, fault.in), y});
      for (int i = 0; i < 2; ++i) trainer.step({good, y});  // steps before check() is called
      std::string text;
      try {
        trainer.check();
        ADD_FAILURE() << "no error";
      } catch (const NotFinite& e) {
        text = e.what();
        EXPECT_EQ(e.step(), 5u);
      }
      test::expect_contains(text, fault.parts);
      EXPECT_EQ(kept_by(trainer, folder), before);
    }
    trainer.step({good, y});
    EXPECT_NE(kept_by(trainer, folder), before);
    EXPECT_EQ(trainer.steps(), 5u);
  }
}

TEST_P(OnEveryDevice, ReportsInvalidTargetsAndEmptyBatches) {
  const auto model = setup(sequential(dense<6, 3>), {.seed = 2});
  using Net = std::remove_const_t<decltype(model)>;
  const auto [x, y] = test::data(4);
  struct Fault {
    Batch batch;
    std::vector<std::string_view> parts;
  };
  const Fault all[] = {{{x, Array::from({0, 1, 3, 2})},
                        {"target 3 of row 2 is not a class; the 3 classes are 0 to 2", "Correct the batch"}},
                       {{x, Array::from({0, -1, 4, 2})}, {"target -1 of row 1"}},
                       {{x, Array::full({4}, -100, DType::i32)}, {"are ignored", "ignore_index, -100"}},
                       {{x.slice(0, 0, 0), y.slice(0, 0, 0)}, {"the batch is empty", "(0, 6)"}}};
  for (const Fault& fault : all) {
    Trainer<Net> trainer(model, Adam(model),
                         [](const Net& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); });
    trainer.step({x, y}), trainer.step(fault.batch);
    test::expect_throw<NotFinite>([&] { trainer.check(); }, fault.parts);
  }
  // Tests targets with more dimensions.
  const auto images = setup(Sequential{Conv2d{.in = 1, .out = 3, .kernel = 1}}, {.seed = 2});
  using Images = std::remove_const_t<decltype(images)>;
  Trainer<Images> trainer(images, Adam(images), [](const Images& m, const Batch& b) {
    return cross_entropy(m(std::get<0>(b)), std::get<1>(b));
  });
  trainer.step({Array::ones({1, 1, 2, 2}), Array::from({0, 1, 2, 9}, Shape{1, 2, 2})});
  test::expect_throw<NotFinite>([&] { trainer.check(); }, {"target 9 of element (0, 1, 1)"});
}

TEST_P(OnEveryDevice, TwoThreadsTrainTwoModelsIndependently) {
  const auto train = [device = GetParam()](std::uint64_t seed) {
    const DeviceScope scope(device);
    const auto model = setup(sequential(dense<6, 12>, BatchNorm{}, relu, Dropout{.p = 0.2}, dense<12, 3>),
                             {.seed = seed, .input = {6}});
    Trainer<test::Network> trainer(model, Adam(model, {.lr = 1e-2}), test::loss_of, {.seed = seed, .clip_norm = 1.0});
    auto all =
        batches(std::get<0>(test::data(40)), std::get<1>(test::data(40)), {.size = 8, .shuffle = true, .seed = seed});
    std::vector<float> losses;
    while (trainer.steps() < 30)
      for (const auto& batch : all) losses.push_back(trainer.step(batch).template item<float>());
    return std::pair(values(trainer.trained()), losses);
  };
  const auto one = train(1), two = train(2);
  EXPECT_NE(one.first, two.first);
  std::remove_const_t<decltype(one)> together[2];
  {
    std::jthread first([&] { together[0] = train(1); }), second([&] { together[1] = train(2); });
  }
  EXPECT_EQ(together[0], one);
  EXPECT_EQ(together[1], two);
}

TEST(TrainerFiles, LoadingATruncatedFileChangesNothing) {
  const DeviceScope cpu({Backend::cpu, 0});
  const test::Folder folder;
  const test::Network model = test::network();
  Trainer<test::Network> saved(model, Adam(model), test::loss_of), trainer(model, Adam(model), test::loss_of);
  for (int i = 0; i < 3; ++i) saved.step(test::data(8));
  const std::string whole = kept_by(saved, folder), path = folder / "cut.safetensors";
  trainer.step(test::data(8));
  const std::string before = kept_by(trainer, folder);
  std::ofstream(path, std::ios::binary) << whole;
  for (std::size_t n = whole.size(); n-- > 0;) {
    std::filesystem::resize_file(path, n);
    ASSERT_THROW(trainer.load(path), FormatError) << n << " of " << whole.size();
    if (n % 97 == 0) {
      ASSERT_EQ(kept_by(trainer, folder), before) << n;
    }
  }
  EXPECT_EQ(trainer.steps(), 1u);
  EXPECT_EQ(kept_by(trainer, folder), before);
  std::ofstream(path, std::ios::binary) << whole;
  trainer.load(path);
  EXPECT_EQ(kept_by(trainer, folder), whole);
}

TEST(TrainerFiles, LoadsFilesOfEarlierVersions) {
  const DeviceScope cpu({Backend::cpu, 0});
  const test::Folder folder;
  const test::Network model = test::network();
  Trainer<test::Network> saved(model, Adam(model), test::loss_of), loaded(model, Adam(model), test::loss_of);
  for (int i = 0; i < 3; ++i) saved.step(test::data(8));
  const std::string now = kept_by(saved, folder);
  const SafetensorsFile file = SafetensorsFile::open(folder / "kept.safetensors");
  std::vector<std::pair<std::string, Array>> all;
  for (const SafetensorsTensor& t : file.tensors())
    if (t.name != "optimiser.idle") {
      std::vector<std::byte> bytes = file.data(t);
      all.emplace_back(t.name, detail::array_of_bytes(bytes, *t.dtype, t.shape, current_device()));
    }
  ASSERT_EQ(all.size() + 1, file.tensors().size());
  save_safetensors(folder / "earlier.safetensors", all, file.metadata());
  loaded.load(folder / "earlier.safetensors");
  EXPECT_EQ(kept_by(loaded, folder), now);
}

TEST(TrainerFiles, LoadReportsAllDifferencesInModelAndSettings) {
  const DeviceScope cpu({Backend::cpu, 0});
  const test::Folder folder;
  const std::string path = folder / "checkpoint.safetensors";
  const test::Network model = test::network();
  Trainer<test::Network> saved(model, Adam(model), test::loss_of, {.accumulate = 2});
  saved.step(test::data(8));
  saved.save(path);
  const auto other = setup(sequential(dense<6, 12>, relu, dense<12, 4>), {.seed = 3, .input = {6}});
  using Other = std::remove_const_t<decltype(other)>;
  Trainer<Other> wrong(other, Sgd(other, {.lr = 0.1}),
                       [](const Other& m, const Batch& b) { return sum(m(std::get<0>(b))); }, {.seed = 9});
  const std::string before = kept_by(wrong, folder);
  const std::string text = test::text_of<ArgumentError>([&] { wrong.load(path); });
  test::expect_contains(
      text, {"the arrays of the file do not match the structure", "missing: model.2.weight, model.2.bias;",
             "model.1.running_mean", "model.1.running_variance", "model.4.weight", "optimiser.m[\"0.weight\"]",
             "optimiser.v[\"4.bias\"]", "summed.0", "seed is 0 in the file and 9 here",
             "accumulate is 2 in the file and 1 here"});
  EXPECT_EQ(kept_by(wrong, folder), before);
  // If only the model is loaded, the error lists its arrays with their shapes. With `.partial`, matching arrays are
  // loaded and reported.
  Other loaded = clone(other);
  test::expect_throw<ArgumentError>([&] { load_model(loaded, path); },
                                    {"missing: 2.weight, 2.bias", "unexpected: ", "model.4.weight"});
  EXPECT_EQ(values(loaded), values(other));
  const LoadReport report = load_model(loaded, path, {.partial = true});
  EXPECT_EQ(report.loaded, (std::vector<std::string>{"0.weight", "0.bias"}));
  EXPECT_EQ(report.missing, (std::vector<std::string>{"2.weight", "2.bias"}));
  EXPECT_EQ(report.unexpected.size(), 7u - 1u) << "the norm's four and the last layer's two";
  EXPECT_EQ(loaded.get<0>().weight.to_vector<float>(), saved.model().get<0>().weight.to_vector<float>());
  EXPECT_EQ(loaded.get<2>().weight.to_vector<float>(), other.get<2>().weight.to_vector<float>());
  const auto wider = setup(sequential(dense<6, 12>, BatchNorm{}, relu, Dropout{}, dense<12, 4>), {.input = {6}});
  auto some = clone(wider);
  const LoadReport most = load_model(some, path, {.partial = true});
  ASSERT_EQ(most.mismatched.size(), 2u);
  EXPECT_EQ(most.mismatched[0], "4.weight is (3, 12) F32 in the file and (4, 12) F32 here");
  EXPECT_EQ(most.mismatched[1], "4.bias is (3,) F32 in the file and (4,) F32 here");
  EXPECT_EQ(most.loaded.size(), 6u);
}

}  // namespace
}  // namespace tessera
