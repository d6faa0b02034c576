// SPDX-License-Identifier: Apache-2.0
// Training on every device: losses, optimisers, schedules and clipping are compared with their formulas in double
// precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/clip.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/pack.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Doubles = std::vector<double>;
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Logits (n, c, d), with different layouts in memory.
struct LogitsCase {
  std::int64_t n, c, d;
  bool classes_last = false;  ///< logits are a view of contiguous rows
};

TEST_P(OnEveryDevice, CrossEntropyOfStridedLogitsOfOneSample) {
  const Array columns = Array::from(numbers(30, -5, 5), Shape{10, 3}), target = Array::full({}, 4, DType::i32);
  const Array strided = columns.select(1, 1), copy = strided.copy();
  const auto loss = [&](const Array& x) { return cross_entropy(x, target); };
  const auto [value, gradient] = value_and_grad(loss)(strided);
  const auto [wanted, wanted_gradient] = value_and_grad(loss)(copy);
  EXPECT_EQ(value.to_vector<float>(), wanted.to_vector<float>());
  EXPECT_EQ(gradient.to_vector<float>(), wanted_gradient.to_vector<float>());
}

TEST_P(OnEveryDevice, CrossEntropyMatchesItsFormula) {
  // Rows of 700 and 9000 elements take several steps of a loop, the last of which is not full.
  for (const auto& [n, c, d, classes_last] :
       {LogitsCase{6, 4, 3}, {6, 4, 3, true}, {18, 4, 1}, {5, 40, 1}, {4, 700, 2}, {4, 700, 2, true}, {3, 9000, 1}}) {
    SCOPED_TRACE(to_string(Shape{n, c, d}) + (classes_last ? " in rows" : ""));
    auto x = numbers(n * c * d, -5, 5);
    x[0] = 1000;  // a large logit must not overflow
    std::vector<std::int32_t> t(at(n * d));
    for (auto& v : t) v = std::uniform_int_distribution<int>(0, static_cast<int>(c) - 1)(random);
    t[0] = 2, t[1] = -100, t[2] = 3;
    const auto w = numbers(c, 0.1f, 2);
    Array logits = Array::from(x, Shape{n, c, d});
    if (classes_last) logits = logits.permute({0, 2, 1}).as_contiguous().permute({0, 2, 1});
    const Array targets = Array::from(t, Shape{n, d}), weight = Array::from(w);
    for (const bool weighted : {false, true})
      for (const double smoothing : {0.0, 0.2}) {
        if (compiles_slowly() && weighted != (smoothing > 0)) continue;
        for (const std::int64_t ignored : {-100, 2}) {
          Doubles losses, gradient(x.size());
          double total = 0, weights = 0;
          for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t k = 0; k < d; ++k) {
              const auto logit = [&](std::int64_t j) { return double{x[at((i * c + j) * d + k)]}; };
              const auto weight_of = [&](std::int64_t j) { return weighted ? double{w[at(j)]} : 1; };
              const std::int32_t target = t[at(i * d + k)];
              double top = -1e300, sum = 0, shares = 0, loss = 0;
              for (std::int64_t j = 0; j < c; ++j) top = std::max(top, logit(j));
              for (std::int64_t j = 0; j < c; ++j) sum += std::exp(logit(j) - top);
              const double log_sum = std::log(sum) + top;
              const auto share = [&](std::int64_t j) {
                return weight_of(j) * ((j == target ? 1 - smoothing : 0) + smoothing / double(c));
              };
              for (std::int64_t j = 0; j < c; ++j) shares += share(j), loss += share(j) * (log_sum - logit(j));
              if (target < 0) loss = NAN;
              if (target == ignored) loss = 0;
              for (std::int64_t j = 0; j < c && target >= 0 && target != ignored; ++j)
                gradient[at((i * c + j) * d + k)] = std::exp(logit(j) - log_sum) * shares - share(j);
              if (target != ignored) weights += target >= 0 ? weight_of(target) : 1;
              losses.push_back(loss);
              total += loss;
            }
          const auto got = [&](const Array& a, Reduction r) {
            CrossEntropyOptions o{.ignore_index = ignored, .label_smoothing = smoothing, .reduction = r};
            if (weighted) o.weight = weight;
            return cross_entropy(a, targets, o);
          };
          const auto each = got(logits, Reduction::none).to_vector<float>();
          ASSERT_EQ(each.size(), losses.size());
          for (std::size_t i = 0; i < each.size(); ++i) {
            if (std::isnan(losses[i]))
              EXPECT_TRUE(std::isnan(each[i])) << i;
            else
              EXPECT_NEAR(each[i], losses[i], 1e-5 * (1 + std::fabs(losses[i]))) << i;
          }
          const auto slopes =
              grad([&](const Array& a) { return got(a, Reduction::sum); })(logits).as_contiguous().to_vector<float>();
          for (std::size_t i = 0; i < slopes.size(); ++i) ASSERT_NEAR(slopes[i], gradient[i], 2e-5) << i;
          if (ignored != -100) {  // the target is not a class
            EXPECT_TRUE(std::isnan(got(logits, Reduction::mean).item<float>()));
            continue;
          }
          EXPECT_NEAR(got(logits, Reduction::sum).item<float>(), total, 1e-5 * std::fabs(total));
          EXPECT_NEAR(got(logits, Reduction::mean).item<float>(), total / weights, 1e-5 * std::fabs(total / weights));
        }
      }
  }
}

TEST_P(OnEveryDevice, CrossEntropyHandlesSpecialLogitsDtypesAndShapes) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const auto f = [](const Array& a) {
    return cross_entropy(a, Array::from({1, 1, 1}), {.reduction = Reduction::none});
  };
  const Array special = Array::from({-inf, 1.f, 1.f, -inf, -inf, -inf, NAN, 1.f, 1.f}, Shape{3, 3});
  const auto losses = f(special).to_vector<float>();
  EXPECT_NEAR(losses[0], std::log(2), 1e-6);
  EXPECT_TRUE(std::isnan(losses[1]) && std::isnan(losses[2]));
  const auto slopes = grad([&](const Array& a) { return sum(f(a)); })(special).to_vector<float>();
  EXPECT_EQ((std::vector<float>(slopes.begin(), slopes.begin() + 3)), (std::vector<float>{0, -0.5, 0.5}));
  for (const DType t : {DType::f16, DType::bf16}) {
    const Array x = Array::from(numbers(3 * 70), Shape{3, 70}).astype(t);
    EXPECT_EQ(f(x).dtype(), DType::f32);
    EXPECT_EQ(f(x).to_vector<float>(), f(x.astype(DType::f32)).to_vector<float>());
    const Array slope = grad([&](const Array& a) { return sum(f(a)); })(x);
    EXPECT_EQ(slope.dtype(), t);
    const auto narrow = slope.astype(DType::f32).to_vector<float>();
    const auto wide = grad([&](const Array& a) { return sum(f(a)); })(x.astype(DType::f32)).to_vector<float>();
    for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], 0x1p-8 * std::fabs(wide[i]) + 1e-6);
  }
  const Array none = Array::zeros({0, 4}), no_targets = Array::zeros({0}, DType::i32);
  EXPECT_EQ(cross_entropy(none, no_targets, {.reduction = Reduction::sum}).item<float>(), 0);
  EXPECT_EQ(grad([&](const Array& a) { return cross_entropy(a, no_targets); })(none).shape(), (Shape{0, 4}));
  EXPECT_NEAR(cross_entropy(Array::from({1.f, 2.f}), Array::full({}, 1, DType::i64)).item<float>(),
              std::log(1 + std::exp(-1)), 1e-6);
  // Targets that need more than 32 bits are not classes. They equal ignore_index only if it has the same 64-bit value.
  const Array wide = Array::from({std::int64_t{1} << 32, std::int64_t{1}});
  const auto wide_losses = [&](std::int64_t ignored) {
    return cross_entropy(Array::from({1.f, 2.f, 1.f, 2.f}, Shape{2, 2}), wide,
                         {.ignore_index = ignored, .reduction = Reduction::none})
        .to_vector<float>();
  };
  EXPECT_TRUE(std::isnan(wide_losses(0)[0]));
  EXPECT_EQ(wide_losses(std::int64_t{1} << 32)[0], 0);
  EXPECT_FALSE(std::isnan(wide_losses(0)[1]));
}

TEST_P(OnEveryDevice, CrossEntropyRejectsWrongArguments) {
  const std::int64_t n = 6, d = 3;
  const Array logits = Array::zeros({n, 4, d}), targets = Array::zeros({n, d}, DType::i32);
  expect_throw<ShapeError>([&] { cross_entropy(logits, Array::zeros({n}, DType::i32)); },
                           {"[cross_entropy]", "(6, 4, 3)", "(6,)", "without the classes"});
  expect_throw<DtypeError>(
      [&] {
        cross_entropy(logits, Array::zeros({n, d}));
      },
      {"[cross_entropy]", "f32", "integers"});
  expect_throw<ArgumentError>([&] { cross_entropy(logits, targets, {.label_smoothing = 2}); }, {"between 0 and 1"});
}

TEST_P(OnEveryDevice, SquaredErrorBinaryCrossEntropyAndAccuracyMatchTheirFormulas) {
  const std::int64_t n = 30;
  auto x = numbers(n, -4, 4);
  const auto t = numbers(n, 0, 1), p = numbers(n, 0.5, 2);
  x[0] = 200, x[1] = -200, x[2] = 0;
  double squares = 0, binary = 0, positive = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    squares += std::pow(double{x[i]} - t[i], 2);
    const double yes = x[i] > 0 ? std::log1p(std::exp(-double{x[i]})) : -x[i] + std::log1p(std::exp(double{x[i]}));
    binary += t[i] * yes + (1 - t[i]) * (x[i] + yes);
    positive += p[i] * t[i] * yes + (1 - t[i]) * (x[i] + yes);
  }
  const Array a = Array::from(x), b = Array::from(t);
  EXPECT_NEAR(mse_loss(a, b).item<float>(), squares / n, 1e-5 * squares / n);
  EXPECT_NEAR(mse_loss(a, b, {.reduction = Reduction::sum}).item<float>(), squares, 1e-5 * squares);
  EXPECT_EQ(mse_loss(a, b, {.reduction = Reduction::none}).shape(), (Shape{n}));
  EXPECT_NEAR(bce_with_logits(a, b).item<float>(), binary / n, 1e-5 * binary / n);
  EXPECT_NEAR(bce_with_logits(a, b, {.pos_weight = Array::from(p), .reduction = Reduction::sum}).item<float>(),
              positive, 1e-5 * positive);
  expect_throw<ShapeError>([&] { mse_loss(a, Array::ones({n, 1})); }, {"[mse_loss]", "(30,)", "(30, 1)"});
  expect_throw<ShapeError>([&] { bce_with_logits(a, Array::ones({1})); }, {"[bce_with_logits]", "(30,)", "(1,)"});
  const Array logits = Array::from({1.f, 2.f, 3.f, 0.f, 5.f, 4.f, 1.f, 1.f}, Shape{4, 2});
  EXPECT_EQ(accuracy(logits, Array::from({1, 0, 1, 1})).item<float>(), 0.5f);
  expect_throw<ShapeError>([&] { accuracy(logits, Array::zeros({3}, DType::i32)); }, {"[accuracy]", "(4, 2)", "(3,)"});
}

struct Model {
  Parameter weight, bias;
  StateArray kept;
  Parameter frozen;
};
Model model_of(const Doubles& w) {
  Model m{Array::from(std::vector<float>(w.begin(), w.begin() + 6), Shape{2, 3}),
          Array::from(std::vector<float>(w.begin() + 6, w.end())), Array::ones({2}), Array::ones({3})};
  freeze(m, "frozen");
  return m;
}
struct State {
  double w, m = 0, v = 0;
};
/// The expected effect of one step on a parameter.
using Formula = std::function<void(State&, double g, int step, double lr, double decay)>;

/// Compares ten steps of an optimiser with its formula, for different memory layouts of the model.
template <class Make>
void expect_formula(OnEveryDevice& test, const char* name, Make&& make, const Formula& formula, const Rate& rate,
                    double decay) {
  static_cast<void>(test);
  std::mt19937_64 random(testing::seed());
  std::uniform_real_distribution<float> draw(-1, 1);
  // If true, the bias has no gradient in some steps, and these steps must not change its moments.
  for (const bool late : {false, true})
    for (const bool packed : {false, true})
      for (const bool groups : {false, true}) {
        int made = 0;
        std::vector<State> want;
        for (int i = 0; i < 10; ++i) want.push_back({draw(random)});
        Doubles start;
        for (const State& s : want) start.push_back(static_cast<float>(s.w));
        for (int i = 0; i < 10; ++i) want[at(i)].w = start[at(i)];
        Model model = model_of(start);
        const Model shared = model;
        std::vector<ParameterGroup> group;
        if (groups) group = {{.pattern = "bias", .lr = 0.05, .weight_decay = 0.0}};
        if (packed) pack(model, groups ? std::vector<std::string>{"bias"} : std::vector<std::string>{});
        auto optimiser = make(model, group);
        for (int step = 1; step <= 10; ++step) {
          std::vector<float> g(10);
          for (float& v : g) v = draw(random);
          Model gradient;
          gradient.weight = Array::from(std::vector<float>(g.begin(), g.begin() + 6), Shape{2, 3});
          const bool both = !late || (step > 3 && step != 6 && step != 7);
          if (both) gradient.bias = Array::from(std::vector<float>(g.begin() + 6, g.end()));
          made += both;
          optimiser.step(model, gradient);
          for (int i = 0; i < (both ? 10 : 6); ++i) {
            const bool own = groups && i >= 6;
            formula(want[at(i)], g[at(i)], i < 6 ? step : made,
                    own ? 0.05 : rate.at(static_cast<std::uint64_t>(step - 1)), own ? 0 : decay);
          }
        }
        const auto weight = model.weight.to_vector<float>(), bias = model.bias.to_vector<float>();
        for (int i = 0; i < 10; ++i)
          EXPECT_NEAR(i < 6 ? weight[at(i)] : bias[at(i - 6)], want[at(i)].w, 2e-5)
              << name << (late ? " late" : "") << (packed ? " packed" : "") << (groups ? " groups " : " ") << i
              << " seed " << testing::seed();
        EXPECT_EQ(optimiser.steps(), 10u);
        EXPECT_EQ(model.kept.template to_vector<float>(), std::vector<float>(2, 1));
        EXPECT_EQ(model.frozen.template to_vector<float>(), std::vector<float>(3, 1));
        // Parameters are updated in place, unless packing has moved them. A parameter that is the only one in its group
        // is not moved.
        EXPECT_EQ(shared.weight.to_vector<float>() == weight, !packed || groups);
      }
}

TEST_P(OnEveryDevice, OptimisersMatchTheirFormulas) {
  const auto sgd = [](double momentum, double dampening, bool nesterov) {
    return [=](State& s, double g, int step, double lr, double decay) {
      g += decay * s.w;
      if (momentum != 0) {
        s.m = step == 1 ? g : momentum * s.m + (1 - dampening) * g;
        g = nesterov ? g + momentum * s.m : s.m;
      }
      s.w -= lr * g;
    };
  };
  const auto of_sgd = [](SgdOptions o) {
    return [o](const Model& m, std::vector<ParameterGroup> groups) {
      SgdOptions with = o;
      with.groups = std::move(groups);
      return Sgd(m, with);
    };
  };
  expect_formula(*this, "sgd", of_sgd({.lr = 0.1}), sgd(0, 0, false), 0.1, 0);
  expect_formula(*this, "momentum", of_sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.01}),
                 sgd(0.9, 0.2, false), 0.1, 0.01);
  expect_formula(*this, "nesterov", of_sgd({.lr = 0.1, .momentum = 0.8, .nesterov = true}), sgd(0.8, 0, true), 0.1, 0);
  const auto adam = [](bool decoupled) {
    return [=](State& s, double g, int step, double lr, double decay) {
      if (decoupled)
        s.w -= lr * decay * s.w;
      else
        g += decay * s.w;
      s.m = 0.9 * s.m + 0.1 * g, s.v = 0.99 * s.v + 0.01 * g * g;
      s.w -= lr * s.m / (1 - std::pow(0.9, step)) / (std::sqrt(s.v / (1 - std::pow(0.99, step))) + 1e-8);
    };
  };
  const Rate rate = cosine_rate(0.02, {.steps = 8, .warmup = 3, .final = 0.001});
  expect_formula(
      *this, "adam",
      [&](const Model& m, auto groups) {
        return Adam(m, {.lr = rate, .beta2 = 0.99, .weight_decay = 0.1, .groups = groups});
      },
      adam(false), rate, 0.1);
  expect_formula(
      *this, "adamw",
      [&](const Model& m, auto groups) {
        return AdamW(m, {.lr = rate, .beta2 = 0.99, .weight_decay = 0.1, .groups = groups});
      },
      adam(true), rate, 0.1);
}

TEST_P(OnEveryDevice, SkippedStepsAreNotCountedForParametersWithLateGradients) {
  Model model = model_of(Doubles(10, 0));
  Adam optimiser(model, {.lr = 1});
  std::uint64_t skipped = 0;
  // The gradient is 1, so each counted step changes the parameter by the learning rate.
  for (int step = 1; step <= 8; ++step) {
    Model gradient;
    gradient.weight = Array::ones({2, 3});
    if (step >= 4 && step != 6) gradient.bias = Array::ones({4});
    const bool skips = step == 2 || step == 5 || step == 6;
    optimiser.advance();
    optimiser.apply(
        model, gradient,
        {.stopped = Array::full({}, skips, DType::u64), .skipped = Array::full({}, double(skipped), DType::u64)});
    skipped += skips;
  }
  for (const float w : model.weight.to_vector<float>()) EXPECT_NEAR(w, -5, 1e-4);
  for (const float b : model.bias.to_vector<float>()) EXPECT_NEAR(b, -3, 1e-4) << "steps 4, 7 and 8";
}

TEST_P(OnEveryDevice, CrossEntropyHasSecondDerivatives) {
  const Array x = Array::from(numbers(15), Shape{3, 5}), weight = Array::from(numbers(5, 0.5f, 2));
  const Array targets = Array::from({4, 0, 2});
  const Array hit = one_hot(targets, 5);
  const CrossEntropyOptions options{.weight = weight, .label_smoothing = 0.1, .reduction = Reduction::sum};
  const auto of_gradient = [&](auto loss) {
    return grad([&](const Array& a) {
             const Array g = grad(loss)(a);
             return sum(g * g);
           })(x)
        .template to_vector<float>();
  };
  const auto got = of_gradient([&](const Array& a) { return cross_entropy(a, targets, options); });
  const auto want =
      of_gradient([&](const Array& a) { return -sum((0.9 * hit + 0.1 / 5) * weight * (a - logsumexp(a, {1}, true))); });
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4 * (1 + std::fabs(want[i]))) << i;
}

TEST_P(OnEveryDevice, CrossEntropyHasGradientsByTheWeightsOfClasses) {
  const Array x = Array::from(numbers(15), Shape{3, 5}), weight = Array::from(numbers(5, 0.5f, 2));
  const Array targets = Array::from({4, 0, 2}), hit = one_hot(targets, 5);
  const auto got =
      grad([&](const Array& w) { return cross_entropy(x, targets, {.weight = w, .label_smoothing = 0.1}); })(weight)
          .to_vector<float>();
  const auto want = grad([&](const Array& w) {
                      return -sum((0.9 * hit + 0.1 / 5) * w * (x - logsumexp(x, {1}, true))) / sum(hit * w);
                    })(weight)
                        .to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * (1 + std::fabs(want[i]))) << i;
}

TEST_P(OnEveryDevice, ForEachArrayVisitsTheOptimiserState) {
  Model model = model_of(Doubles(10, 1));
  Adam optimiser(model);
  Model gradient;
  gradient.weight = Array::ones({2, 3});  // the bias has no gradient
  optimiser.step(model, gradient);
  std::vector<std::string> paths;
  for_each_array(optimiser, [&](const Array&, const Path& at) { paths.push_back(at.text()); });
  EXPECT_EQ(paths, (std::vector<std::string>{"step", "m.weight", "v.weight", "idle"}));
  EXPECT_EQ(model.bias.to_vector<float>(), std::vector<float>(4, 1));
  // A second optimiser with copies of the arrays continues in the same way.
  Model one = clone(model), two = clone(model);
  Adam other = map_arrays(optimiser, [](const Array& a) { return a.copy(); });
  optimiser.step(one, gradient), other.step(two, gradient);
  EXPECT_EQ(other.steps(), 2u);
  EXPECT_EQ(one.weight.to_vector<float>(), two.weight.to_vector<float>());

  gradient.bias = Array::ones({5});
  expect_throw<ShapeError>([&] { optimiser.step(model, gradient); },
                           {"[optimiser.step]", "path = bias", "(4,)", "(5,)"});
  expect_throw<ArgumentError>([&] { Adam(model, {.groups = {{.pattern = "none"}}}); },
                              {"belongs to this group", "none"});
  expect_throw<ArgumentError>([&] { Adam(model, {.beta1 = 1}); }, {"[Adam]", "beta1"});
  expect_throw<ArgumentError>([&] { Sgd(model, {.nesterov = true}); }, {"[Sgd]", "nesterov"});
}

TEST_P(OnEveryDevice, PackedParametersKeepTheirValues) {
  Doubles start(10);
  for (int i = 0; i < 10; ++i) start[at(i)] = i;
  Model model = model_of(start);
  pack(model);
  EXPECT_EQ(model.weight.shape(), (Shape{2, 3}));
  EXPECT_EQ(model.weight.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(model.bias.to_vector<float>(), (std::vector<float>{6, 7, 8, 9}));
  EXPECT_EQ(model.weight.view().storage, model.bias.view().storage);
  EXPECT_NE(model.weight.view().storage, model.frozen.view().storage);
  EXPECT_TRUE(model.frozen.frozen());
}

TEST_P(OnEveryDevice, GradientsAreClipped) {
  const auto g = numbers(10, -2, 2);
  for (const double type : {1.0, 2.0, 3.0, static_cast<double>(INFINITY)})
    for (const double most : {0.5, 1000.0}) {
      Model gradient;
      gradient.weight = Array::from(std::vector<float>(g.begin(), g.begin() + 6), Shape{2, 3});
      gradient.bias = Array::from(std::vector<float>(g.begin() + 6, g.end()));
      double norm = 0;
      for (const float v : g)
        norm = std::isinf(type) ? std::max<double>(norm, std::fabs(v)) : norm + std::pow(std::fabs(v), type);
      if (!std::isinf(type)) norm = std::pow(norm, 1 / type);
      EXPECT_NEAR(clip_gradient_norm(gradient, most, {.norm_type = type}).item<float>(), norm, 1e-5 * norm) << type;
      const double factor = std::min(1.0, most / (norm + 1e-6));
      const auto weight = gradient.weight.to_vector<float>(), bias = gradient.bias.to_vector<float>();
      for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(i < 6 ? weight[i] : bias[i - 6], g[i] * factor, 1e-5);
      EXPECT_TRUE(gradient.frozen.empty());
      clip_gradient_value(gradient, 0.01);
      for (const float v : gradient.weight.to_vector<float>()) EXPECT_LE(std::fabs(v), 0.01f);
    }
  Model none;
  EXPECT_EQ(clip_gradient_norm(none, 1).item<float>(), 0);
  expect_throw<ArgumentError>([&] { clip_gradient_norm(none, -1); }, {"[clip_gradient_norm]"});
}

TEST(Schedules, RatesWarmUpAndDecay) {
  const Rate constant = constant_rate(2, {.warmup = 4}), line = linear_rate(2, {.steps = 10, .warmup = 2, .final = 1}),
             cosine = cosine_rate(2, {.steps = 10, .warmup = 2});
  EXPECT_EQ(constant.at(0), 0.5);
  EXPECT_EQ(constant.at(3), 2);
  EXPECT_EQ(constant.at(100), 2);
  EXPECT_EQ(Rate(0.1).at(7), 0.1);
  EXPECT_EQ(line.at(1), 2);
  EXPECT_EQ(line.at(2), 2);
  EXPECT_EQ(line.at(6), 1.5);
  EXPECT_EQ(line.at(10), 1);
  EXPECT_EQ(line.at(11), 1);
  EXPECT_NEAR(cosine.at(4), 2 * (1 + std::cos(M_PI / 4)) / 2, 1e-12);
  EXPECT_NEAR(cosine.at(10), 0, 1e-12);
  expect_throw<ArgumentError>([] { cosine_rate(1, {.steps = 2, .warmup = 2}); },
                              {"[cosine_rate]", "after the warm-up"});
}

}  // namespace
}  // namespace tessera
