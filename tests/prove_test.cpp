// SPDX-License-Identifier: Apache-2.0
// Proofs of properties of models: never refuted by what is tried, equal to exact answers where these can be had, and
// counterexamples that are; on every device. TESSERA_TEST_LONG=1: a million inputs for each network.
#include "tessera/nn/verify/prove.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/compile.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/verify/curves.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/polygons.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

bool in_full() { return std::getenv("TESSERA_TEST_LONG") != nullptr; }

/// Values of every array that are not those of setup, so that norms and biases do something.
template <class Model>
Model varied(Model model, std::mt19937_64& random, float size = 1) {
  detail::for_each_part(model, [&](ModelArray& part, const Path& at) {
    std::normal_distribution<float> d;
    auto v = part.to_vector<float>();
    const float scale =
        part.rank() > 1 ? 1.5f * size / std::sqrt(static_cast<float>(part.size() / part.shape(0))) : 0.5f;
    for (float& x : v) {
      x = scale * d(random);
      if (at.text().ends_with("variance")) x = 0.5f + std::abs(x);
    }
    static_cast<Array&>(part) = Array::from(v, part.shape(), part.device());
  });
  return model;
}

/// Inputs of the box at random, a third of their numbers at its faces.
Array inputs_of(const InputBox& box, std::int64_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<float> part(-0.25f, 1.25f);
  std::vector<float> x(static_cast<std::size_t>(count) * box.low.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float lo = box.low[i % box.low.size()], hi = box.high[i % box.low.size()];
    x[i] = std::clamp(lo + (hi - lo) * part(random), lo, hi);
  }
  Shape shape = box.shape;
  shape.insert(shape.begin(), count);
  return Array::from(x, shape);
}

/// Where 1,000 projected gradient descents down `loss` of each sample's outputs end, and all that they pass.
template <class Model, class Loss, class Look>
void descend(const Model& model, const InputBox& box, std::mt19937_64& random, const Loss& loss, int starts, int steps,
             const Look& look) {
  Array x = inputs_of(box, starts, random);
  Shape one = box.shape;
  one.insert(one.begin(), 1);
  const Array low = Array::from(box.low, one), high = Array::from(box.high, one);
  for (int i = 0; i < steps; ++i) {
    const Array slope = grad([&](const Array& at) { return sum(loss(model(at))); })(x);
    const double step = 0.3 * (1 - i / static_cast<double>(steps));
    x = x - step * (high - low) * where(slope > 0, 1.0, where(slope < 0, -1.0, 0.0));
    x = minimum(maximum(x, low), high).eval();
    look(x);
  }
}

/// One network and what is asked of it: it tries to break what was proven.
template <class Model>
class Case {
 public:
  Case(std::string name, Model model, InputBox box, std::mt19937_64& random)
      : name_(std::move(name)), model_(std::move(model)), box_(std::move(box)), random_(random) {}

  /// Bounds of the outputs a little wider than those of random inputs, and the class near one input.
  int prove_and_attack(std::int64_t points) {
    SCOPED_TRACE(name_);
    const auto [least, most] = range(model_(inputs_of(box_, 256, random_)));
    int proven = 0;
    for (const double wider : {0.2, 1.0, 5.0}) {
      const Property property = bounded(least - wider * (most - least) - 1e-3, most + wider * (most - least) + 1e-3);
      const Proof proof = prove(model_, property, box_, {.seconds = 8, .boxes = 3000});
      EXPECT_NE(proof.verdict, Verdict::refuted) << to_string(proof);
      if (proof.verdict != Verdict::proven) continue;
      ++proven;
      for (std::size_t i = 0; i < proof.low.size(); ++i) {
        EXPECT_GE(proof.low[i], property.low);
        EXPECT_LE(proof.high[i], property.high);
      }
      attack_bounds(proof, points);
      break;
    }
    for (double radius = 0.2; radius > 1e-3; radius /= 3) {
      Array centre = inputs_of(box_, 1, random_).reshape(box_.shape);
      const Proof proof = prove(model_, robust(radius), InputBox::at(centre), {.seconds = 5, .boxes = 1000});
      if (proof.verdict != Verdict::proven) continue;
      ++proven;
      attack_class(proof, InputBox::around(centre, radius), points);
      break;
    }
    return proven;
  }

 private:
  static std::pair<double, double> range(const Array& y) { return {min(y).item<float>(), max(y).item<float>()}; }
  void attack_bounds(const Proof& proof, std::int64_t points) {
    const auto outputs = static_cast<std::int64_t>(proof.low.size());
    const auto look = [&](const Array& x) {
      const Array y = model_(x).reshape({x.shape(0), -1});
      const auto low = min(y, {0}).template to_vector<float>(), high = max(y, {0}).template to_vector<float>();
      for (std::size_t i = 0; i < low.size(); ++i) {
        ASSERT_GE(low[i], proof.low[i]) << "output " << i;
        ASSERT_LE(high[i], proof.high[i]) << "output " << i;
      }
    };
    for (std::int64_t done = 0; done < points; done += 20'000)
      look(inputs_of(box_, std::min<std::int64_t>(points - done, 20'000), random_));
    const int starts = points >= 1'000'000 ? 1000 : 100;
    std::vector<float> signs(static_cast<std::size_t>(outputs));
    for (float& s : signs) s = random_() % 2 != 0 ? 1.0f : -1.0f;
    const Array direction = Array::from(signs);
    descend(
        model_, box_, random_,
        [&](const Array& y) {
          return y.reshape({y.shape(0), -1}) * direction;
        },
        starts, 10, look);
  }
  void attack_class(const Proof& proof, const InputBox& near, std::int64_t points) {
    const auto look = [&](const Array& x) {
      const auto classes =
          argmax(model_(x).reshape({x.shape(0), -1}), 1).astype(DType::i32).template to_vector<std::int32_t>();
      for (const std::int32_t c : classes) ASSERT_EQ(c, proof.kept_class);
    };
    for (std::int64_t done = 0; done < points; done += 20'000)
      look(inputs_of(near, std::min<std::int64_t>(points - done, 20'000), random_));
    descend(
        model_, near, random_,
        [&](const Array& y) {
          const Array rows = y.reshape({y.shape(0), -1});
          const Array kept = rows.slice(1, proof.kept_class, proof.kept_class + 1);
          return kept - max(where(rows == kept, -1e30, rows), {1}, true);
        },
        points >= 1'000'000 ? 1000 : 100, 10, look);
  }

  std::string name_;
  Model model_;
  InputBox box_;
  std::mt19937_64& random_;
};
template <class Model>
int check(std::string name, Model model, const InputBox& box, std::mt19937_64& random, std::int64_t points) {
  Shape input = box.shape;
  model = varied(setup(std::move(model), {.seed = random(), .input = input}), random);
  return Case<Model>(std::move(name), std::move(model), box, random).prove_and_attack(points);
}

TEST_P(OnEveryDevice, WhatIsProvenIsNotRefutedByInputsAndGradients) {
  const bool slow = GetParam().backend == Backend::interp;
  const std::int64_t points = in_full() && !slow ? 1'000'000 : slow ? 500 : 10'000;
  const int rounds = is_built_in(GetParam().backend) && !slow ? 3 : 1;  // 30 networks on the CPU
  int proven = 0, networks = 0;
  const auto note = [&](int count) { proven += count, ++networks; };
  for (int round = 0; round < rounds; ++round) {
    const InputBox flat = InputBox::of({3}, -1, 1), pictures = InputBox::of({1, 6, 6}, 0, 0.1f);
    note(check("relu", sequential(dense<3, 16>, relu, dense<16, 4>), flat, random, points));
    note(check("deep relu", sequential(dense<3, 12>, relu, dense<12, 12>, relu, dense<12, 3>), flat, random, points));
    note(check("tanh", sequential(dense<3, 12>, tanh, dense<12, 3>), flat, random, points));
    note(check("sigmoid", sequential(dense<3, 12>, sigmoid, dense<12, 8>, LeakyRelu{}, dense<8, 2>), flat, random,
               points));
    note(check("gelu", sequential(dense<3, 12>, gelu, dense<12, 3>), flat, random, points));
    note(check("silu", sequential(dense<3, 12>, Silu{}, Dropout{}, dense<12, 3>, Softmax{}), flat, random, points));
    note(check("norms", sequential(dense<3, 12>, BatchNorm{}, relu, dense<12, 8>, LayerNorm{}, dense<8, 3>), flat,
               random, points));
    note(check("residual",
               Sequential{Dense{.outputs = 8}, Residual{Sequential{Dense{8, 12}, Relu{}, Dense{12, 8}}}, Relu{},
                          Dense{.outputs = 3}},
               flat, random, points));
    note(check("residuals",
               Sequential{Dense{.outputs = 6}, Residual{Sequential{Dense{6, 6}, Tanh{}}},
                          Residual{Sequential{Relu{}, Dense{6, 6}}}, Dense{.outputs = 2}},
               flat, random, points));
    note(check("images",
               Sequential{Conv2d{.out = 3, .kernel = 3, .padding = 1}, BatchNorm{}, Relu{}, MaxPool2d{},
                          Conv2d{.out = 2, .kernel = 2, .stride = 1, .groups = 1}, Relu{}, AveragePool2d{}, Flatten{},
                          Dense{.outputs = 3}},
               pictures, random, slow ? 100 : points / 5));
  }
  EXPECT_EQ(networks, 10 * rounds);
  EXPECT_GE(proven, networks + networks / 3) << "of " << 2 * networks;
}

TEST_P(OnEveryDevice, AnswersAreThoseOfExhaustiveSplitting) {
  const int networks = GetParam().backend == Backend::interp && !in_full() ? 2 : 20;
  for (int i = 0; i < networks; ++i) {
    SCOPED_TRACE(i);
    const InputBox box = InputBox::of({2}, -1, 1);
    const auto model =
        varied(setup(sequential(dense<2, 8>, relu, dense<8, 8>, relu, dense<8, 1>), {.seed = 1}), random);
    const auto [least, most] = test::exact_range(model, -1, 1);  // in f64, over all patterns of active units
    const double size = std::max(std::abs(least), std::abs(most)), slack = 1e-3 * size, far = 100 + size;
    struct Asked {
      Property property;
      bool holds;
    };
    for (const Asked& asked : {Asked{bounded(least - slack, far), true}, Asked{bounded(least + slack, far), false},
                               Asked{bounded(-far, most + slack), true}, Asked{bounded(-far, most - slack), false},
                               Asked{inequality({1}, most + slack), true}, Asked{inequality({-2}, -2 * least), true}}) {
      // (The last is exact: within rounding of the bound, it cannot be proven.)
      const bool exact = asked.property.kind == Property::Kind::inequality && asked.property.coefficients[0] < 0;
      const Proof proof = prove(model, asked.property, box, {.seconds = 20});
      if (exact)
        EXPECT_NE(proof.verdict, Verdict::proven) << to_string(asked.property) << ": " << to_string(proof);
      else
        EXPECT_EQ(proof.verdict, asked.holds ? Verdict::proven : Verdict::refuted)
            << to_string(asked.property) << ": " << to_string(proof);
      if (proof.verdict != Verdict::refuted) continue;
      ASSERT_TRUE(proof.counterexample);
      const Array& x = proof.counterexample->input;
      EXPECT_TRUE(box.holds(x.to_vector<float>().data()));
      EXPECT_FALSE(verification::wrong_with(asked.property, model(x).to_vector<float>().data(), 1).empty());
      EXPECT_EQ(model(x).to_vector<float>(), proof.counterexample->output.to_vector<float>());
    }
    // Intervals alone come to the same.
    const Proof plain =
        prove(model, bounded(least - 0.05 * size, far), box, {.seconds = 20, .linear_bounds = false, .attack = false});
    EXPECT_EQ(plain.verdict, Verdict::proven) << to_string(plain);
  }
}

/// 1 at (a, b), and 0 where |x - a| + |y - b| is more than 1 / steep.
auto spike(float a, float b, float steep) {
  auto model = setup(sequential(dense<2, 4>, relu, dense<4, 1>, relu), {.seed = 1});
  model.get<0>().weight = Array::from<float>({1, 0, -1, 0, 0, 1, 0, -1}, Shape{4, 2});
  model.get<0>().bias = Array::from<float>({-a, a, -b, b});
  model.get<2>().weight = Array::from<float>({-steep, -steep, -steep, -steep}, Shape{1, 4});
  model.get<2>().bias = Array::from<float>({1});
  return model;
}

TEST_P(OnEveryDevice, APlantedViolationIsFoundWithItsInput) {
  const InputBox box = InputBox::of({2}, -1, 1);
  const auto model = spike(0.377f, -0.6123f, 2000);  // 1 in 8 million of the box is above a half
  EXPECT_FALSE(find_counterexample(model, bounded(-1, 0.5), inputs_of(box, 1000, random)));
  const Proof proof = prove(model, bounded(-1, 0.5), box);
  ASSERT_EQ(proof.verdict, Verdict::refuted) << to_string(proof);
  const auto x = proof.counterexample->input.to_vector<float>();
  EXPECT_NEAR(x[0], 0.377, 5e-4);
  EXPECT_NEAR(x[1], -0.6123, 5e-4);
  EXPECT_GT(model(proof.counterexample->input).item<float>(), 0.5f);
  EXPECT_NE(proof.counterexample->what.find("above 0.5"), std::string::npos) << proof.counterexample->what;
  // Beside it, it is not.
  EXPECT_EQ(prove(model, bounded(-1, 0.5), InputBox::of({2}, 0.378f, 1)).verdict, Verdict::proven);
  EXPECT_EQ(prove(model, bounded(-1, 1.01), box).verdict, Verdict::proven);
}

TEST_P(OnEveryDevice, BoundsHoldTheRoundingsOfTheDevice) {
  // Sums that cancel: what a device gives is off by far more than f64's roundings, and within the bounds.
  const std::int64_t k = 700;
  auto model = setup(Sequential{Dense{k, 8}}, {.seed = 1});
  const auto w = numbers(8 * k, -1e4f, 1e4f), b = numbers(8, -1, 1), x = numbers(k, -1e3f, 1e3f);
  model.get<0>().weight = Array::from(w, Shape{8, k});
  model.get<0>().bias = Array::from(b);
  const Array sample = Array::from(x);
  const Proof proof = prove(model, bounded(-1e12, 1e12), InputBox::at(sample), {.linear_bounds = false});
  ASSERT_EQ(proof.verdict, Verdict::proven) << to_string(proof);
  const auto y = model(sample.reshape({1, k})).to_vector<float>();
  double off = 0;
  for (std::size_t r = 0; r < 8; ++r) {
    double exact = b[r], reach = 0;
    for (std::size_t c = 0; c < x.size(); ++c) {
      const double term = static_cast<double>(w[r * x.size() + c]) * x[c];
      exact += term, reach += std::abs(term);
    }
    off = std::max(off, std::abs(y[r] - exact) / reach);
    EXPECT_LE(proof.low[r], y[r]);
    EXPECT_GE(proof.high[r], y[r]);
    EXPECT_LE(proof.low[r], exact);
    EXPECT_GE(proof.high[r], exact);
    EXPECT_LT(proof.high[r] - proof.low[r], 1e-4 * reach);
  }
  EXPECT_GT(off, 1e-12) << "nothing was rounded";
}

TEST_P(OnEveryDevice, Robustness) {
  // Classes by the sign of x0 - x1, which is 0.6 at the sample: the other class is 0.3 away in the largest number, 0.42
  // in length, 0.6 in sum.
  auto model = setup(sequential(dense<2, 2>), {.seed = 1});
  model.get<0>().weight = Array::from<float>({1, -1, -1, 1}, Shape{2, 2});
  model.get<0>().bias = Array::from<float>({0, 0});
  const InputBox at = InputBox::at(Array::from<float>({0.5f, -0.1f}));
  const auto asked = [&](double radius, Norm norm) { return prove(model, robust(radius, norm), at).verdict; };
  EXPECT_EQ(asked(0.299, Norm::infinity), Verdict::proven);
  EXPECT_EQ(asked(0.301, Norm::infinity), Verdict::refuted);
  EXPECT_EQ(asked(0.42, Norm::two), Verdict::proven);
  EXPECT_EQ(asked(0.43, Norm::two), Verdict::refuted);
  EXPECT_EQ(asked(0.59, Norm::one), Verdict::proven);
  EXPECT_EQ(asked(0.61, Norm::one), Verdict::refuted);
  // All inputs of a box: the class changes within it, and at its side.
  const Proof within = prove(model, robust(0.01), InputBox::of({2}, -1, 1));
  ASSERT_EQ(within.verdict, Verdict::refuted) << to_string(within);
  const Counterexample& c = *within.counterexample;
  const auto x = c.input.to_vector<float>(), other = c.other_input->to_vector<float>();
  EXPECT_LE(verification::distance(Norm::infinity, x.data(), other.data(), 2), 0.01);
  EXPECT_NE(argmax(model(c.input), 1).astype(DType::i32).item<std::int32_t>(),
            argmax(model(*c.other_input), 1).astype(DType::i32).item<std::int32_t>());
  const InputBox side = InputBox::of(Array::from<float>({0.2f, -1}), Array::from<float>({1, 0.1f}));
  EXPECT_EQ(prove(model, robust(0.04), side).verdict, Verdict::proven);
  EXPECT_EQ(prove(model, robust(0.06), side).verdict, Verdict::refuted);
  // A class that two outputs share is the first of them, whatever they are.
  auto equal = setup(sequential(dense<2, 2>), {.seed = 1});
  equal.get<0>().weight = Array::zeros({2, 2});
  equal.get<0>().bias = Array::from<float>({1, 1});
  EXPECT_EQ(prove(equal, robust(0.1), at).kept_class, 0);
}

TEST_P(OnEveryDevice, FiniteAndProbabilities) {
  auto model = varied(setup(sequential(dense<3, 8>, gelu, dense<8, 4>, Softmax{}), {.seed = 1}), random);
  EXPECT_EQ(prove(model, finite(), InputBox::of({3}, -100, 100)).verdict, Verdict::proven);
  EXPECT_EQ(prove(model, probabilities(), InputBox::of({3}, -3, 3)).verdict, Verdict::proven);
  const auto logits = sequential(dense<3, 8>, relu, dense<8, 4>);
  const auto plain = varied(setup(logits, {.seed = 1}), random);
  const Proof none = prove(plain, probabilities(), InputBox::of({3}, -3, 3));
  ASSERT_EQ(none.verdict, Verdict::refuted);
  EXPECT_FALSE(none.counterexample->what.empty());
  // Inputs of 1e38 overflow.
  const Proof large = prove(plain, finite(), InputBox::of({3}, -3e38f, 3e38f), {.seconds = 2, .boxes = 500});
  EXPECT_EQ(large.verdict, Verdict::refuted) << to_string(large);
  // A weight that is no number is known, and found.
  auto broken = setup(logits, {.seed = 1});
  broken.get<2>().bias = Array::from<float>({0, 0, NAN, 0});
  const Proof nan = prove(broken, finite(), InputBox::of({3}, -1, 1));
  EXPECT_EQ(nan.verdict, Verdict::refuted);
  EXPECT_NE(nan.counterexample->what.find("output 2 is nan"), std::string::npos) << nan.counterexample->what;
}

TEST_P(OnEveryDevice, UnknownSaysWhy) {
  const InputBox box = InputBox::of({64}, -1, 1), small = InputBox::of({2}, -1, 1);
  const auto said = [](const Proof& proof) {
    EXPECT_EQ(proof.verdict, Verdict::unknown) << to_string(proof);
    return proof.reason;
  };
  using test::holds;
  const auto smooth = varied(setup(sequential(dense<2, 6>, relu, dense<6, 2>), {.seed = 1}), random);
  // What compile has folded or packed.
  auto folded = smooth;
  folded.get<0>().folded = Activation::relu;
  EXPECT_TRUE(holds(said(prove(folded, bounded(-100, 100), small)), "layer 0 (Dense): it is folded"));
  const auto dense64 = setup(sequential(dense<64, 64>), {.seed = 1});
  EXPECT_TRUE(holds(said(prove(compile(dense64), bounded(-1e6, 1e6), box)), "it is a compiled model"));
  // Numbers that are not f32, functions that nobody knows, models that are no Sequential.
  const auto narrow = setup(sequential(dense<2, 4>), {.seed = 1, .dtype = DType::bf16});
  EXPECT_TRUE(holds(said(prove(narrow, bounded(-100, 100), small)), "its arrays are bf16"));
  const auto odd = setup(Sequential{Dense{2, 4}, Elementwise{static_cast<Array (*)(Array)>(sin)}}, {.seed = 1});
  EXPECT_TRUE(holds(said(prove(odd, bounded(-2, 2), small)), "its function is none of"));
  struct Own {
    Dense layer{2, 2};
    Array operator()(const Array& x) const { return layer(x) * layer(x); }
  };
  const Own own = setup(Own{}, {.seed = 1});
  EXPECT_TRUE(holds(said(prove(own, bounded(-1, 1e6), small)), "bounds of such layers are not known"));
  EXPECT_EQ(prove(own, bounded(0.1, 0.2), small).verdict, Verdict::refuted) << "whatever it is, it can be run";
  // What is tested alone.
  EXPECT_TRUE(holds(said(prove(smooth, lipschitz(1e4, 0.1), small)), "is tested, not proven"));
  // Limits, and how far it came.
  const auto deep =
      varied(setup(sequential(dense<64, 64>, relu, dense<64, 64>, relu, dense<64, 1>), {.seed = 1}), random);
  const float some = max(deep(inputs_of(box, 200, random))).item<float>();
  const Property close = bounded(-1e6, some + 1);
  EXPECT_TRUE(holds(said(prove(deep, close, box, {.boxes = 20, .attack = false})), "stopped after 20 boxes"));
  EXPECT_TRUE(holds(said(prove(deep, close, box, {.seconds = 0, .attack = false})), "stopped after 0 s"));
  EXPECT_TRUE(holds(said(prove(deep, close, box, {.bytes = 10, .attack = false})), "for want of memory"));
  // A bound that rounding does not leave: the least of the box is 0, and f32's roundings cannot be told from that.
  auto exact = setup(sequential(dense<2, 1>), {.seed = 1});
  exact.get<0>().weight = Array::from<float>({1, 1}, Shape{1, 2});
  exact.get<0>().bias = Array::from<float>({2});
  EXPECT_TRUE(holds(said(prove(exact, bounded(0, 10), small)), "within what rounding may come to"));
}

TEST_P(OnEveryDevice, ProgressAndOptions) {
  const auto model =
      varied(setup(sequential(dense<4, 24>, relu, dense<24, 24>, relu, dense<24, 1>), {.seed = 1}), random);
  const InputBox box = InputBox::of({4}, -1, 1);
  const auto y = model(inputs_of(box, 500, random));
  const float high = max(y).item<float>(), low = min(y).item<float>();
  std::vector<ProveProgress> told;
  const Proof proof = prove(model, bounded(-1e6, high + 0.3f * (high - low)), box,
                            {.seconds = 30, .progress = [&](const ProveProgress& p) { told.push_back(p); }});
  EXPECT_NE(proof.verdict, Verdict::refuted);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().boxes, proof.boxes);
  EXPECT_EQ(told.back().share, proof.share);
  if (proof.verdict == Verdict::proven) EXPECT_EQ(proof.share, 1);
  // The same question, the same answer.
  const Proof again = prove(model, bounded(-1e6, high + 0.3f * (high - low)), box, {.seconds = 30});
  if (proof.verdict == Verdict::proven) {
    EXPECT_EQ(again.tree, proof.tree);
    EXPECT_EQ(again.low, proof.low);
    EXPECT_EQ(again.margin, proof.margin);
  }
}

TEST_P(OnEveryDevice, TestsOfTheProgramsOwnData) {
  const auto model = varied(setup(sequential(dense<3, 8>, relu, dense<8, 2>), {.seed = 1}), random);
  const Array data = inputs_of(InputBox::of({3}, -1, 1), 2000, random);
  EXPECT_FALSE(find_counterexample(model, finite(), data));
  EXPECT_FALSE(find_counterexample(model, lipschitz(1e4, 0.1), data));
  const auto steep = find_counterexample(model, lipschitz(1e-3, 0.1), data);
  ASSERT_TRUE(steep);
  EXPECT_TRUE(steep->other_input);
  // Of a model that rises with input 0 and falls with input 1.
  auto slope = setup(sequential(dense<2, 1>), {.seed = 1});
  slope.get<0>().weight = Array::from<float>({1, -1}, Shape{1, 2});
  const Array plane = inputs_of(InputBox::of({2}, -1, 1), 300, random);
  EXPECT_FALSE(find_counterexample(slope, monotone(0), plane));
  const auto falls = find_counterexample(slope, monotone(1), plane);
  ASSERT_TRUE(falls);
  const auto a = falls->input.to_vector<float>(), b = falls->other_input->to_vector<float>();
  EXPECT_LT(a[1], b[1]);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_GT(slope(falls->input).item<float>(), slope(*falls->other_input).item<float>());
  // A predicate of one's own.
  const Property small = predicate(
      "y is below 2 |x|", [](const Array& x, const Array& y) { return max(abs(y), {1}) < 2 * max(abs(x), {1}); });
  const auto found = find_counterexample(model, small, data * 0.01);
  ASSERT_TRUE(found) << "near 0 the biases are more";
  EXPECT_EQ(found->input.shape(), (Shape{1, 3}));
  const auto flips = find_counterexample(model, robust(2), data.slice(0, 0, 20));
  EXPECT_EQ(prove(slope, monotone(1), InputBox::of({2}, -1, 1)).verdict, Verdict::refuted);
  static_cast<void>(flips);
}

TEST(Prove, LinesAndRangesHoldTheirCurves) {
  using namespace verification;
  std::mt19937_64 random(testing::seed());
  std::uniform_real_distribution<double> part(-1, 1);
  for (const CurveKind kind :
       {CurveKind::relu, CurveKind::leaky, CurveKind::tanh, CurveKind::sigmoid, CurveKind::silu, CurveKind::gelu})
    for (int i = 0; i < 400; ++i) {
      const Curve curve{kind, kind == CurveKind::leaky ? 2 * part(random) : 0};
      const double size = std::pow(10, 3 * part(random)), a = size * part(random),
                   b = a + size * std::abs(part(random));
      const Interval x{a, b}, all = range(curve, x);
      const Lines l = lines(curve, x);
      for (int s = 0; s <= 200; ++s) {
        const double at = s == 200 ? b : a + (b - a) * s / 200, y = value(curve, at);
        ASSERT_LE(all.lo, y) << static_cast<int>(kind) << " at " << at << " of " << a << " to " << b;
        ASSERT_GE(all.hi, y) << static_cast<int>(kind) << " at " << at << " of " << a << " to " << b;
        ASSERT_LE(l.below_slope * at + l.below, y)
            << static_cast<int>(kind) << " at " << at << " of " << a << " to " << b;
        ASSERT_GE(l.above_slope * at + l.above, y)
            << static_cast<int>(kind) << " at " << at << " of " << a << " to " << b;
      }
      // Of smooth ones they are close.
      if (kind > CurveKind::leaky && b - a <= 1 && b - a > 1e-3)
        EXPECT_LT((l.above - l.below) + (l.above_slope - l.below_slope) * (a + b) / 2, 0.6 * (b - a));
    }
}

TEST(Prove, MistakesAreNamed) {
  const DeviceScope scope(Device{});
  const auto model = setup(sequential(dense<2, 3>), {.seed = 1});
  const InputBox box = InputBox::of({2}, -1, 1);
  expect_throw<ShapeError>([&] { prove(model, finite(), InputBox::of({3}, 0, 1)); }, {"prove", "layer", "(3,)"});
  expect_throw<ArgumentError>([&] { prove(model, inequality({1, 2}, 0), box); }, {"one coefficient for each output"});
  expect_throw<ArgumentError>([&] { prove(model, monotone(2), box); }, {"no such input"});
  expect_throw<ArgumentError>([] { InputBox::of({2}, 1, 0); }, {"lower one first"});
  expect_throw<ArgumentError>([] { InputBox::of({2}, 0, INFINITY); }, {"not finite"});
  expect_throw<ArgumentError>([] { bounded(1, 0); }, {"bounded(1, 0)"});
  expect_throw<ArgumentError>([] { robust(-1); }, {"radius"});
  expect_throw<ArgumentError>([] { inequality({}, 0); }, {"coefficient"});
  {
    Training mode({.seed = 1});
    expect_throw<ArgumentError>([&] { prove(model, finite(), box); }, {"Training scope"});
  }
  expect_throw<ArgumentError>([] { property_of("boundd(1, 2)"); }, {"boundd(1, 2)", "finite()", "inequality"});
  for (const Property& p : {finite(), bounded(-0.1, 1e9), inequality({0.1, -3}, 1e-7), probabilities(0.01),
                            robust(0.1, Norm::two), robust(1e-3), monotone(3, 1e-5), lipschitz(3, 0.1)})
    EXPECT_EQ(to_string(property_of(to_string(p))), to_string(p));
  for (const char* bad : {"", "robust()", "robust(1, three)", "bounded(1)", "bounded(1,2", "inequality(1, 2)",
                          "inequality(<= 2)", "monotone(-1)", "monotone(0.5)", "bounded(1,,2)", "finite(1)"})
    EXPECT_THROW(property_of(bad), ArgumentError) << bad;
}

}  // namespace
}  // namespace tessera
