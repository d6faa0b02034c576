// SPDX-License-Identifier: Apache-2.0
// Tests on every device that attacks do not refute proofs, that results match the exact results where those are known,
// and that counterexamples are valid. TESSERA_TEST_LONG=1 tests a million inputs for each network.
#include "tessera/nn/verify/prove.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/verify/curves.h"
#include "tests/llm/varied_model.h"
#include "tests/support/every_device.h"
#include "tests/verify/polygons.h"

namespace tessera {
namespace {

using test::inputs_of;
using test::OnEveryDevice;
using test::varied;
TESSERA_ON_EVERY_DEVICE();

bool in_full() { return std::getenv("TESSERA_TEST_LONG") != nullptr; }

/// Runs `steps` steps of projected gradient descent on `loss` of the outputs, from `starts` random inputs. Passes all
/// visited points to `look`.
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

/// A network and its properties. Tries to refute properties that were proven.
template <class Model>
class Case {
 public:
  Case(std::string name, Model model, InputBox box, std::mt19937_64& random)
      : name_(std::move(name)), model_(std::move(model)), box_(std::move(box)), random_(random) {}

  /// Tests bounds slightly wider than the outputs of random inputs, and the class near one input.
  int prove_and_attack(std::int64_t points) {
    SCOPED_TRACE(name_);
    const auto [least, most] = range(model_(inputs_of(box_, 256, random_)));
    int proven = 0;
    for (const double wider : {0.2, 1.0, 5.0}) {
      const Property property = bounded(least - wider * (most - least) - 1e-3, most + wider * (most - least) + 1e-3);
      const Proof proof = prove(model_, property, box_, {.seconds = 8, .boxes = 3000});
      if (proof.verdict ==
          Verdict::refuted) {  // in 36 dimensions, a few random inputs are a poor estimate of the worst case
        const auto [low, high] = range(model_(proof.counterexample->input));
        EXPECT_TRUE(low < property.low || high > property.high) << to_string(proof);
      }
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

TEST_P(OnEveryDevice, AttacksDoNotRefuteProofs) {
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
               pictures, random,
               slow        ? 100
               : in_full() ? points
                           : points / 5));
  }
  EXPECT_EQ(networks, 10 * rounds);
  EXPECT_GE(proven, networks + networks / 3) << "of " << 2 * networks;
}

TEST_P(OnEveryDevice, ResultsMatchTheExactOutputRange) {
  const int networks = GetParam().backend == Backend::interp && !in_full() ? 2 : 20;
  for (int i = 0; i < networks; ++i) {
    SCOPED_TRACE(i);
    const InputBox box = InputBox::of({2}, -1, 1);
    const auto model =
        varied(setup(sequential(dense<2, 8>, relu, dense<8, 8>, relu, dense<8, 1>), {.seed = 1}), random);
    const auto [least, most] = test::exact_range(model, -1, 1);  // in f64, over all combinations of active units
    const double size = std::max(std::abs(least), std::abs(most)), slack = 1e-3 * size, far = 100 + size;
    struct Asked {
      Property property;
      bool holds;
    };
    for (const Asked& asked : {Asked{bounded(least - slack, far), true}, Asked{bounded(least + slack, far), false},
                               Asked{bounded(-far, most + slack), true}, Asked{bounded(-far, most - slack), false},
                               Asked{inequality({1}, most + slack), true}, Asked{inequality({-2}, -2 * least), true}}) {
      // (The last property equals the exact range. It is within the rounding error, so it cannot be proven.)
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
    // Interval bounds without linear bounds must have the same result.
    const Proof plain =
        prove(model, bounded(least - 0.05 * size, far), box, {.seconds = 20, .linear_bounds = false, .attack = false});
    EXPECT_EQ(plain.verdict, Verdict::proven) << to_string(plain);
  }
}

/// Returns a model that is 1 at (a, b), and 0 if |x - a| + |y - b| is greater than 1 / steep.
auto spike(float a, float b, float steep) {
  auto model = setup(sequential(dense<2, 4>, relu, dense<4, 1>, relu), {.seed = 1});
  model.get<0>().weight = Array::from<float>({1, 0, -1, 0, 0, 1, 0, -1}, Shape{4, 2});
  model.get<0>().bias = Array::from<float>({-a, a, -b, b});
  model.get<2>().weight = Array::from<float>({-steep, -steep, -steep, -steep}, Shape{1, 4});
  model.get<2>().bias = Array::from<float>({1});
  return model;
}

TEST_P(OnEveryDevice, FindsAViolationInASmallRegion) {
  const InputBox box = InputBox::of({2}, -1, 1);
  const auto model = spike(0.377f, -0.6123f, 2000);  // greater than 0.5 in 1 / 8,000,000 of the box
  EXPECT_FALSE(find_counterexample(model, bounded(-1, 0.5), inputs_of(box, 1000, random)));
  const Proof proof = prove(model, bounded(-1, 0.5), box);
  ASSERT_EQ(proof.verdict, Verdict::refuted) << to_string(proof);
  const auto x = proof.counterexample->input.to_vector<float>();
  EXPECT_NEAR(x[0], 0.377, 5e-4);
  EXPECT_NEAR(x[1], -0.6123, 5e-4);
  EXPECT_GT(model(proof.counterexample->input).item<float>(), 0.5f);
  EXPECT_NE(proof.counterexample->what.find("above 0.5"), std::string::npos) << proof.counterexample->what;
  // The property holds in a box next to the spike.
  EXPECT_EQ(prove(model, bounded(-1, 0.5), InputBox::of({2}, 0.378f, 1)).verdict, Verdict::proven);
  EXPECT_EQ(prove(model, bounded(-1, 1.01), box).verdict, Verdict::proven);
}

TEST_P(OnEveryDevice, BoundsIncludeTheRoundingErrorsOfTheDevice) {
  // In sums with cancellation, the error of a device is much larger than the error of f64. It must be within the
  // bounds.
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
  EXPECT_GT(off, 1e-12) << "the device computed without rounding errors";
}

TEST(Prove, LinearBoundsAndRangesContainTheActivations) {
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
      // The linear bounds of smooth functions must be tight.
      if (kind > CurveKind::leaky && b - a <= 1 && b - a > 1e-3) {
        EXPECT_LT((l.above - l.below) + (l.above_slope - l.below_slope) * (a + b) / 2, 0.6 * (b - a));
      }
    }
}

}  // namespace
}  // namespace tessera
