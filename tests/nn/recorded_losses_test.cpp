// SPDX-License-Identifier: Apache-2.0
// Losses that draw random numbers, count, or branch on the host, on every device. Either a recording trainer computes
// results that are bit-identical to those of an eager trainer, or it does not record and reports the reason.
#include <functional>
#include <random>

#include "tests/nn/small_network.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::Batch;
using test::OnEveryDevice;
using test::Values;
TESSERA_ON_EVERY_DEVICE();

auto small() { return setup(sequential(dense<6, 3>), {.seed = 3}); }
using Model = decltype(small());

/// Variables of a program that are not part of its model.
struct Host {
  Generator generator{5}, other{9};
  std::mt19937_64 random{3};
  double beta = 0.1;
  std::int64_t calls = 0;
  Array number = Array::full({}, 0.5);
  std::vector<Array> arrays = {random_normal({8, 3}, 1).eval(), random_normal({8, 3}, 2).eval(),
                               random_normal({8, 3}, 3).eval()};
};
/// Computes a term from the model's outputs y (8, 3). The loss is its mean plus a cross-entropy.
using Term = std::function<Array(Host&, const Array& y, const Array& x)>;
struct Case {
  const char* name;
  Term term;
  std::function<void(Host&)> between = {};  ///< called between steps
};

const Shape noise = {8, 3};

/// Losses that can be replayed: the results are the same as those of eager steps.
const std::vector<Case> replayed = {
    {"normal numbers", [](Host& h, const Array& y, const Array&) { return y * h.generator.normal(noise); }},
    {"uniform numbers", [](Host& h, const Array& y, const Array&) { return y * h.generator.uniform({3}, -1, 2); }},
    {"bits", [](Host& h, const Array& y, const Array&) { return y * (h.generator.bits({3}) & 7).astype(DType::f32); }},
    {"several draws",
     [](Host& h, const Array& y, const Array&) {
       return y * h.generator.normal(noise) + h.generator.uniform({8, 1}) * y * h.generator.normal({3});
     }},
    {"two generators",
     [](Host& h, const Array& y, const Array&) { return y * h.generator.normal(noise) * h.other.uniform(noise); }},
    {"a generator that is used between steps, too",
     [](Host& h, const Array& y, const Array&) { return y * h.generator.normal(noise); },
     [](Host& h) { h.generator.uniform({7}).eval(); }},
    {"a generator that gets another seed between steps",
     [](Host& h, const Array& y, const Array&) { return y * h.generator.normal(noise); },
     [](Host& h) { h.generator = Generator(h.random()); }},
    {"augmentation", [](Host& h, const Array& y,
                        const Array& x) { return y * sum(x + h.generator.normal(x.shape(), 0, 0.1), {1}, true); }},
    {"a copy of a generator",
     [](Host& h, const Array& y, const Array&) { return y * Generator(h.generator).normal(noise); }},
    {"a generator made in the loss",
     [](Host&, const Array& y, const Array&) { return y * Generator(7).normal(noise); }},
    {"a generator that the loss sets back",
     [](Host& h, const Array& y, const Array&) {
       h.generator = Generator(4);
       return y * h.generator.normal(noise) * h.generator.uniform(noise);
     }},
    {"a fixed seed", [](Host&, const Array& y, const Array&) { return y * random_normal(noise, 3); }},
    {"the trainer's counter",
     [](Host&, const Array& y, const Array&) { return y * random_normal(noise, 3, training()->counter); }},
    {"a schedule", [](Host&, const Array& y, const Array&) { return y * minimum(step_number() / 10.0, 1.0); }},
    {"a number on the device", [](Host& h, const Array& y, const Array&) { return y * h.number; },
     [](Host& h) { h.number.fill(h.beta += 0.1); }},
};

/// Losses that cannot be replayed, because the results would differ from those of eager steps.
const std::vector<Case> refused = {
    {"a seed drawn on the host",
     [](Host& h, const Array& y, const Array&) { return y * random_normal(noise, h.random()); }},
    {"a factor", [](Host& h, const Array& y, const Array&) { return y * (h.beta += 0.1); }},
    {"a divisor", [](Host& h, const Array& y, const Array&) { return y / (h.beta += 0.1); }},
    {"a summand", [](Host& h, const Array& y, const Array&) { return y * y + (h.beta *= 0.9) * y; }},
    {"an exponent",
     [](Host& h, const Array& y, const Array&) { return pow(abs(y), 1.0 + static_cast<double>(++h.calls)); }},
    {"a threshold", [](Host& h, const Array& y, const Array&) { return where(y > (h.beta += 0.1), y, 0.0); }},
    {"a bound", [](Host& h, const Array& y, const Array&) { return clip(y, -1, h.beta += 0.1); }},
    {"an array filled by the host",
     [](Host& h, const Array& y, const Array&) { return y * Array::full({}, h.beta += 0.1); }},
    {"an array copied from the host",
     [](Host& h, const Array& y, const Array&) { return y * Array::from({static_cast<float>(h.beta += 0.1)}); }},
    {"a generator seeded by the host",
     [](Host& h, const Array& y, const Array&) { return y * Generator(h.random()).normal(noise); }},
    {"a generator that the loss seeds",
     [](Host& h, const Array& y, const Array&) {
       h.generator = Generator(static_cast<std::uint64_t>(++h.calls));
       return y * h.generator.normal(noise);
     }},
    {"a counter of the host",
     [](Host& h, const Array& y, const Array&) {
       return y * random_normal(noise, 3, Counter(static_cast<std::uint64_t>(++h.calls)));
     }},
    {"more draws each time",
     [](Host& h, const Array& y, const Array&) {
       Array sum = y;
       for (std::int64_t i = 0; i < h.calls; ++i) sum = sum + y * h.generator.normal(noise);
       ++h.calls;
       return sum;
     }},
    {"a draw in each second step",
     [](Host& h, const Array& y, const Array&) { return ++h.calls % 2 == 0 ? y * h.generator.normal(noise) : y; }},
    {"one function and then another",
     [](Host& h, const Array& y, const Array&) { return ++h.calls % 2 == 0 ? tanh(y) : relu(y); }},
    {"another row each time",
     [](Host& h, const Array& y, const Array&) {
       const std::int64_t row = h.calls++ % 8;
       return y.slice(0, row, row + 1) * 1.0;
     }},
    {"another array each time",
     [](Host& h, const Array& y, const Array&) { return y * h.arrays[static_cast<std::size_t>(h.calls++ % 3)]; }},
    {"more rows each time",
     [](Host& h, const Array& y, const Array&) { return y.slice(0, 0, 1 + h.calls++ % 8) * 1.0; }},
    {"a read on the host",
     [](Host& h, const Array& y, const Array&) {
       h.beta += 0.1 * sum(stop_gradient(y)).item<float>();
       return y * h.beta;
     }},
};

struct Outcome {
  std::vector<float> losses;
  Values weights;
  std::uint64_t drawn = 0, replays = 0;
  std::string not_recorded;
};
Outcome train(const Case& c, bool recorded, int steps, std::int64_t accumulate = 1) {
  Host host;
  const Model model = small();
  const Batch batch = test::data(8);
  Trainer<Model> trainer(model, Adam(model, {.lr = 0.1}),
                         [&](const Model& m, const Batch& b) {
                           const Array y = m(std::get<0>(b));
                           return cross_entropy(y, std::get<1>(b)) + mean(c.term(host, y, std::get<0>(b)));
                         },
                         {.accumulate = accumulate, .recorded = recorded});
  Outcome out;
  for (int i = 0; i < steps; ++i) {
    out.losses.push_back(trainer.step(batch).item<float>());
    if (c.between) c.between(host);
  }
  trainer.check();
  out.weights = test::values(trainer.model());
  out.drawn = host.generator.offset() + host.other.offset();
  out.replays = trainer.replays(), out.not_recorded = trainer.not_recorded();
  return out;
}
void expect_as_eager(const Case& c, const Outcome& got, const Outcome& eager) {
  EXPECT_EQ(got.losses, eager.losses) << c.name;
  EXPECT_EQ(got.weights, eager.weights) << c.name;
  EXPECT_EQ(got.drawn, eager.drawn) << c.name;
}

bool other_width(Device device) { return device.backend == Backend::interp && device.index != 0; }

TEST_P(OnEveryDevice, ReplaysDrawTheSameNumbersAsEagerSteps) {
  if (other_width(GetParam())) GTEST_SKIP() << "records as interp:0 does";
  for (const Case& c : replayed) {
    const Outcome got = train(c, true, 12);
    expect_as_eager(c, got, train(c, false, 12));
    EXPECT_EQ(got.not_recorded, "") << c.name;
    EXPECT_GT(got.replays, 4u) << c.name;
  }
  const Outcome got = train(replayed[3], true, 16, 2);
  expect_as_eager(replayed[3], got, train(replayed[3], false, 16, 2));
  EXPECT_GT(got.replays, 4u);
}

TEST_P(OnEveryDevice, DoesNotRecordStepsThatUseChangingHostValues) {
  if (other_width(GetParam())) GTEST_SKIP() << "records as interp:0 does";
  for (const Case& c : refused) {
    const Outcome got = train(c, true, 9);
    expect_as_eager(c, got, train(c, false, 9));
    EXPECT_NE(got.not_recorded, "") << c.name;
    EXPECT_EQ(got.replays, 0u) << c.name;
  }
}

TEST_P(OnEveryDevice, DetectsChangedHostValuesWithin64Steps) {
  if (other_width(GetParam())) GTEST_SKIP() << "records as interp:0 does";
  const Case c = {"a phase", [](Host& h, const Array& y, const Array&) { return y * (h.calls > 20 ? 2.0 : 1.0); },
                  [](Host& h) { ++h.calls; }};
  const Outcome got = train(c, true, 20 + 64 + 1);
  test::expect_contains(got.not_recorded, {"differs from the recorded step", "= 2 instead of 1", "Generator"});
}

}  // namespace
}  // namespace tessera
