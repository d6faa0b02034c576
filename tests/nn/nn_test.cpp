// SPDX-License-Identifier: Apache-2.0
// Models and layers on every device: paths, setup and modes. Each layer is compared with plain loops in double
// precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>

#include "tessera/array/move.h"
#include "tessera/base/philox.h"
#include "tessera/device/context.h"
#include "tessera/nn/attention.h"
#include "tessera/nn/images.h"
#include "tessera/nn/initialise.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/sequential.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::expect_throw;
using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

struct Classifier {
  Sequential<Flatten, Dense, BatchNorm, Dropout, Dense> layers;
  Array operator()(const Array& x) const { return layers(x); }
};
Classifier classifier() {
  return {{Flatten{}, Dense{.outputs = 6}, BatchNorm{}, Dropout{.p = 0.25}, Dense{.outputs = 3}}};
}
std::vector<std::string> paths(const std::vector<NamedArray>& arrays) {
  std::vector<std::string> out;
  for (const NamedArray& a : arrays) out.push_back(a.path);
  return out;
}
void expect_near(const Array& got, const std::vector<double>& want, double tolerance = 2e-5) {
  const auto values = got.astype(DType::f32).to_vector<float>();
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(values[i], want[i], tolerance * (1 + std::fabs(want[i]))) << i << " seed " << testing::seed();
}
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

TEST_P(OnEveryDevice, ArraysOfAModelHavePaths) {
  const auto model = setup(classifier(), {.seed = 1, .input = {2, 4}});
  EXPECT_EQ(paths(parameters(model)), (std::vector<std::string>{"layers.1.weight", "layers.1.bias", "layers.2.weight",
                                                                "layers.2.bias", "layers.4.weight", "layers.4.bias"}));
  EXPECT_EQ(paths(states(model)), (std::vector<std::string>{"layers.2.running_mean", "layers.2.running_variance"}));
  EXPECT_EQ(model.layers.get<1>().weight.shape(), (Shape{6, 8}));
  EXPECT_EQ(model.layers.get<4>().weight.path(), "layers.4.weight");
  EXPECT_EQ(model.layers.get<3>().path.text(), "layers.3");
  EXPECT_EQ(model.layers.get<1>().weight.device(), GetParam());
  EXPECT_EQ(model(Array::ones({5, 2, 4})).shape(), (Shape{5, 3}));
  const std::string table = summary(model);
  expect_contains(table, {"path", "layers.1.weight          ", "parameter", "f32", "(6, 8)", "48",
                          "layers.2.running_mean", "state", "87 elements are trained, 0 frozen, 12 state"});
}

TEST_P(OnEveryDevice, CopiesShareMemoryAndClonesDoNot) {
  auto model = setup(Sequential{Dense{.inputs = 2, .outputs = 2}}, {.seed = 3});
  const auto before = model.get<0>().weight.to_vector<float>();
  auto shared = model;
  auto apart = clone(model);
  model.get<0>().weight += 1.0;
  EXPECT_EQ(shared.get<0>().weight.to_vector<float>(), model.get<0>().weight.to_vector<float>());
  EXPECT_EQ(apart.get<0>().weight.to_vector<float>(), before);
  EXPECT_EQ(apart.get<0>().weight.path(), "0.weight");
  // A shared array remains shared.
  struct Tied {
    Parameter a, b;
  };
  const Array both = Array::ones({2});
  Tied tied = clone(Tied{both, both});
  tied.a += 1.0;
  EXPECT_EQ(tied.b.to_vector<float>(), (Floats{2, 2}));
  EXPECT_EQ(both.to_vector<float>(), (Floats{1, 1}));
  // A shared array is counted once. It is trained if one of its occurrences is trained.
  expect_contains(summary(tied), {"b     parameter  f32    (2,)           as a", "2 elements are trained, 0 frozen"});
  freeze(tied, "a");
  expect_contains(summary(tied), {"a     frozen", "as a", "2 elements are trained, 0 frozen"});
  freeze(tied);
  expect_contains(summary(tied), {"0 elements are trained, 2 frozen, 0 state"});
}

TEST_P(OnEveryDevice, FreezeAffectsOnlyThisCopyOfTheModel) {
  auto model = setup(classifier(), {.input = {8, 1}});
  const auto before = model;
  freeze(model, "layers.1.*");
  EXPECT_FALSE(model.layers.get<1>().weight.trained());
  EXPECT_TRUE(model.layers.get<1>().bias.frozen());
  EXPECT_TRUE(model.layers.get<4>().weight.trained());
  EXPECT_TRUE(before.layers.get<1>().weight.trained());
  // Assigning an Array does not change the frozen flag. Assigning a Parameter does.
  model.layers.get<1>().weight = Array::ones({6, 8});
  EXPECT_TRUE(model.layers.get<1>().weight.frozen());
  EXPECT_EQ(model.layers.get<1>().weight.path(), "layers.1.weight");
  EXPECT_TRUE(to(model, Device{}).layers.get<1>().bias.frozen());
  model.layers.get<1>().weight = before.layers.get<1>().weight;
  EXPECT_FALSE(model.layers.get<1>().weight.frozen());
  unfreeze(model);
  EXPECT_TRUE(model.layers.get<1>().bias.trained());
  EXPECT_FALSE(model.layers.get<2>().running_mean.trained());
  expect_throw<ArgumentError>(
      [&] { freeze(model, "layers.9.*"); },
      {"[freeze] no parameter of this model has a matching path", "layers.9.*", "summary(model)"});
  EXPECT_TRUE(path_matches("layers.0.weight", "*.weight"));
  EXPECT_TRUE(path_matches("layers.0.weight", "layers.?.w*t"));
  EXPECT_FALSE(path_matches("layers.10.weight", "layers.?.weight"));
  EXPECT_FALSE(path_matches("layers.0.weight", "layers.0"));
}

TEST_P(OnEveryDevice, InitialValuesDependOnlyOnSeedAndPath) {
  const SetupOptions options{.seed = 7, .input = {4, 2}};
  const auto one = setup(classifier(), options), again = setup(classifier(), options);
  const auto here = parameters(one), there = [&] {
    const DeviceScope cpu(Device{});
    return parameters(setup(classifier(), options));
  }();
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].array.to_vector<float>(), there[i].array.to_vector<float>()) << here[i].path;
    EXPECT_EQ(here[i].array.to_vector<float>(), parameters(again)[i].array.to_vector<float>()) << here[i].path;
  }
  // A smaller model with the same path gets the same values. A different seed or path results in different values.
  struct Part {
    struct Layers {
      Parameter weight{{6, 8}, init::kaiming_uniform({.a = std::sqrt(5.0)})};
    };
    std::map<int, Layers> layers;
  };
  Part part;
  part.layers[1] = {}, part.layers[2] = {};
  part = setup(part, {.seed = 7});
  EXPECT_EQ(part.layers[1].weight.to_vector<float>(), here[0].array.to_vector<float>());
  EXPECT_NE(part.layers[2].weight.to_vector<float>(), here[0].array.to_vector<float>());
  const auto other = setup(classifier(), {.seed = 8, .input = {4, 2}});
  EXPECT_NE(other.layers.get<1>().weight.to_vector<float>(), here[0].array.to_vector<float>());
  // Arrays that already have values keep them.
  auto given = classifier();
  given.layers.get<4>().weight = Array::ones({3, 6});
  given = setup(given, options);
  EXPECT_EQ(given.layers.get<4>().weight.to_vector<float>(), Floats(18, 1));
  EXPECT_EQ(given.layers.get<4>().bias.to_vector<float>(), here[5].array.to_vector<float>());
}

TEST_P(OnEveryDevice, InitialisersProduceTheExpectedMoments) {
  struct Case {
    const char* name;
    Initialiser make;
    double mean, deviation, bound;
  };
  const Shape shape{200, 100, 3};
  const double in = 300, out = 600, inf = INFINITY;
  const auto uniform = [](const char* name, Initialiser make, double b) {
    return Case{name, std::move(make), 0, b / std::sqrt(3), b};
  };
  const Case cases[] = {
      {"zeros", init::zeros(), 0, 0, 0},
      {"ones", init::ones(), 1, 0, 1},
      {"constant", init::constant(-2), -2, 0, 2},
      {"uniform", init::uniform(), 0.5, 1 / std::sqrt(12), 1},
      {"normal", init::normal(2, 0.5), 2, 0.5, inf},
      uniform("xavier_uniform", init::xavier_uniform({.gain = 2}), 2 * std::sqrt(6 / (in + out))),
      {"xavier_normal", init::xavier_normal(), 0, std::sqrt(2 / (in + out)), inf},
      uniform("kaiming_uniform", init::kaiming_uniform(), std::sqrt(2.0) * std::sqrt(3 / in)),
      uniform("Linear's", init::kaiming_uniform({.a = std::sqrt(5.0)}), 1 / std::sqrt(in)),
      uniform("of outputs",
              init::kaiming_uniform({.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::tanh}),
              5.0 / 3 * std::sqrt(3 / out)),
      {"kaiming_normal", init::kaiming_normal({.nonlinearity = init::Nonlinearity::relu}), 0, std::sqrt(2 / in), inf}};
  for (const Case& c : cases) {
    const auto v = c.make(shape, 5).to_vector<float>();
    const double n = static_cast<double>(v.size());
    double sum = 0, squares = 0, most = 0;
    for (const float x : v) sum += x, most = std::max<double>(most, std::fabs(x));
    for (const float x : v) squares += (x - sum / n) * (x - sum / n);
    EXPECT_NEAR(sum / n, c.mean, 5 * c.deviation / std::sqrt(n) + 1e-6) << c.name;
    EXPECT_NEAR(std::sqrt(squares / n), c.deviation, 0.01 * c.deviation + 1e-6) << c.name;
    EXPECT_LE(most, c.bound * (1 + 1e-6)) << c.name;
    if (c.deviation > 0 && c.bound < inf) {
      EXPECT_GT(most, 0.999 * c.bound) << c.name;
    }
  }
  expect_throw<ShapeError>([] { init::xavier_normal()({5}, 1); }, {"(5,)", "fewer than two dimensions"});
}

TEST_P(OnEveryDevice, SetupReportsMismatchedSizes) {
  expect_throw<ShapeError>([] { setup(Sequential{Dense{.outputs = 3}}, {}); },
                           {"[setup] the shape of the layer's input is unknown", "path = 0", "Dense", ".input"});
  expect_throw<ShapeError>(
      [] {
        setup(Sequential{Dense{.outputs = 3}, Relu{}, Dense{.inputs = 4, .outputs = 2}}, {.input = {5}});
      },
      {"number of inputs differs", "path = 2", "takes = 4", "(3,)"});
  struct Two {
    Dense first, second;
  };
  expect_throw<ShapeError>(
      [] {
        setup(Two{{.outputs = 2}, {.outputs = 2}}, {.input = {5}});
      },
      {"is unknown", "path = second"});
  EXPECT_EQ(setup(Two{{.outputs = 2}, {.inputs = 3, .outputs = 2}}, {.input = {5}}).first.weight.shape(),
            (Shape{2, 5}));
  const auto model = setup(classifier(), {.input = {4, 2}});
  expect_throw<ShapeError>([&] { model(Array::ones({5, 9})); }, {"[Dense layers.1]", "(5, 9)", "(6, 8)"});
  expect_throw<ArgumentError>([&] { Dense{.outputs = 2}(Array::ones({5, 9})); }, {"[Dense]", "setup(model"});
  expect_throw<ShapeError>(
      [] {
        Dense d{.inputs = 2, .outputs = 3};
        d.weight = Array::ones({3, 3});
        setup(d);
      },
      {"(3, 3)", "(3, 2)"});
}

TEST_P(OnEveryDevice, DenseAndEmbeddingMatchReferenceLoops) {
  const auto x = numbers(2 * 3 * 5);
  const auto d = setup(Dense{.outputs = 4}, {.seed = 2, .input = {5}});
  const auto w = d.weight.to_vector<float>(), b = d.bias.to_vector<float>();
  std::vector<double> want;
  for (int r = 0; r < 6; ++r)
    for (int o = 0; o < 4; ++o) {
      double s = b[at(o)];
      for (int i = 0; i < 5; ++i) s += double{x[at(r * 5 + i)]} * w[at(o * 5 + i)];
      want.push_back(s);
    }
  expect_near(d(Array::from(x, Shape{2, 3, 5})), want);
  EXPECT_EQ(setup(Dense{.inputs = 5, .outputs = 4, .with_bias = false}).bias.size(), 0);

  const auto e = setup(Embedding{.count = 7, .size = 3}, {.seed = 2});
  const auto table = e.weight.to_vector<float>();
  const auto rows = e(Array::from({std::int64_t{6}, std::int64_t{0}}, Shape{1, 2}));
  EXPECT_EQ(rows.shape(), (Shape{1, 2, 3}));
  Floats expected(table.begin() + 18, table.end());
  expected.insert(expected.end(), table.begin(), table.begin() + 3);
  EXPECT_EQ(rows.to_vector<float>(), expected);
  expect_throw<DtypeError>([&] { e(Array::ones({2})); }, {"[Embedding]", "f32", "integer ids"});
}

TEST_P(OnEveryDevice, NormsMatchReferenceLoops) {
  const std::int64_t n = 4, c = 3, h = 5;
  const auto x = numbers(n * c * h);
  const auto index = [&](std::int64_t i, std::int64_t j, std::int64_t k) { return at((i * c + j) * h + k); };
  auto norm = setup(BatchNorm{.momentum = 0.3}, {.input = {c, h}});
  norm.weight = Array::from({1.5f, -1.f, 0.5f}), norm.bias = Array::from({0.f, 1.f, 2.f});
  const Array input = Array::from(x, Shape{n, c, h});
  const float scale[] = {1.5f, -1.f, 0.5f}, shift[] = {0, 1, 2};
  double mean[3], variance[3];
  for (std::int64_t j = 0; j < c; ++j) {
    double s = 0, q = 0;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < h; ++k) s += x[index(i, j, k)];
    mean[j] = s / double(n * h);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < h; ++k) q += std::pow(x[index(i, j, k)] - mean[j], 2);
    variance[j] = q / double(n * h);
  }
  std::vector<double> trained, inferred, running_mean, running_variance;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < c; ++j)
      for (std::int64_t k = 0; k < h; ++k) {
        trained.push_back((x[index(i, j, k)] - mean[j]) / std::sqrt(variance[j] + 1e-5) * scale[j] + shift[j]);
        inferred.push_back(x[index(i, j, k)] / std::sqrt(1 + 1e-5) * scale[j] + shift[j]);
      }
  for (std::int64_t j = 0; j < c; ++j) {
    running_mean.push_back(0.3 * mean[j]);
    running_variance.push_back(0.7 + 0.3 * variance[j] * double(n * h) / double(n * h - 1));
  }
  expect_near(norm(input), inferred);
  {
    Training mode;
    expect_near(norm(input), trained);
    expect_near(norm.running_mean, {0, 0, 0}, 0);  // not written yet
    mode.apply(norm);
    expect_near(norm.running_mean, running_mean);
    expect_near(norm.running_variance, running_variance);
    mode.apply(norm);  // an update is applied only once
    expect_near(norm.running_mean, running_mean);
  }
  {
    // A second update in the same scope starts from the first one. Without apply(), updates are dropped. Other models
    // are unchanged.
    auto other = clone(norm);
    const auto before = norm.running_mean.to_vector<float>();
    {
      Training dropped;
      norm(input);
    }
    Training mode;
    norm(input), norm(input);
    mode.apply(other);
    EXPECT_EQ(other.running_mean.to_vector<float>(), before);
    mode.apply(norm);
    for (auto& m : running_mean) m = m / 0.3;
    std::vector<double> twice;
    for (int j = 0; j < 3; ++j) twice.push_back(before[at(j)] * 0.49 + mean[j] * (0.3 + 0.7 * 0.3));
    expect_near(norm.running_mean, twice);
    expect_throw<ShapeError>([&] { norm(Array::ones({1, 3})); }, {"[BatchNorm]", "(1, 3)", "one value per channel"});
  }
  expect_throw<ShapeError>([&] { norm(Array::ones({4, 2, 5})); }, {"[BatchNorm]", "(4, 2, 5)", "(3,)"});

  // Normalises over the last two axes.
  auto layer = setup(LayerNorm{.shape = {c, h}}, {.input = {c, h}});
  const auto w = numbers(c * h), b = numbers(c * h);
  layer.weight = Array::from(w, Shape{c, h}), layer.bias = Array::from(b, Shape{c, h});
  std::vector<double> normal, root;
  for (std::int64_t i = 0; i < n; ++i) {
    double s = 0, q = 0;
    for (int k = 0; k < c * h; ++k) s += x[at(i * c * h + k)];
    s /= double(c * h);
    for (int k = 0; k < c * h; ++k) q += std::pow(x[at(i * c * h + k)] - s, 2) / double(c * h);
    for (int k = 0; k < c * h; ++k)
      normal.push_back((x[at(i * c * h + k)] - s) / std::sqrt(q + 1e-5) * w[at(k)] + b[at(k)]);
  }
  expect_near(layer(input), normal, 1e-4);
  expect_throw<ShapeError>([&] { layer(Array::ones({4, 5, 3})); }, {"[LayerNorm]", "(4, 5, 3)", "(3, 5)"});

  auto rms = setup(RmsNorm{}, {.input = {h}});
  rms.weight = Array::from(Floats(w.begin(), w.begin() + h));
  for (std::int64_t r = 0; r < n * c; ++r) {
    double q = 0;
    for (int k = 0; k < h; ++k) q += std::pow(x[at(r * h + k)], 2) / double(h);
    for (int k = 0; k < h; ++k) root.push_back(x[at(r * h + k)] / std::sqrt(q + 1e-6) * w[at(k)]);
  }
  expect_near(rms(input), root, 1e-4);
}

TEST_P(OnEveryDevice, DropoutMaskDependsOnSeedPathAndCounter) {
  const auto model = setup(Sequential{Dropout{.p = 0.3}, Dropout{.p = 0.3}}, {});
  const Dropout& first = model.get<0>();
  const std::int64_t n = 40000;
  const Array x = Array::full({n}, 2);
  EXPECT_EQ(first(x).to_vector<float>(), Floats(at(n), 2));  // in inference mode
  const auto drawn = [&](const Dropout& layer, TrainingOptions options) {
    Training mode(options);
    return layer(x).to_vector<float>();
  };
  const auto one = drawn(first, {.seed = 1});
  const float kept = static_cast<float>(2 * (1 / 0.7));
  std::int64_t zeros = 0;
  for (const float v : one) {
    ASSERT_TRUE(v == 0 || std::fabs(v - kept) < 1e-6f) << v;
    zeros += v == 0;
  }
  EXPECT_NEAR(double(zeros) / double(n), 0.3, 5 * std::sqrt(0.21 / double(n)));
  EXPECT_EQ(drawn(first, {.seed = 1}), one);
  EXPECT_NE(drawn(first, {.seed = 2}), one);
  EXPECT_NE(drawn(first, {.seed = 1, .counter = Counter(1)}), one);
  EXPECT_NE(drawn(model.get<1>(), {.seed = 1}), one);
  // A counter in device memory has the same effect as its value. It is read when the kernel runs.
  Array counter = Array::from({std::uint64_t{1}});
  EXPECT_EQ(drawn(first, {.seed = 1, .counter = Counter(counter)}), drawn(first, {.seed = 1, .counter = Counter(1)}));
  // The interpreter draws the same random numbers.
  const DeviceScope elsewhere(Device{Backend::interp, 0});
  Training mode({.seed = 1});
  EXPECT_EQ(first(Array::full({n}, 2)).to_vector<float>(), one);
  expect_throw<ArgumentError>([&] { Dropout{}(x); }, {"[Dropout]", "from its path", "setup"});
  expect_throw<ArgumentError>([&] { Dropout{.p = 1.5}(x); }, {"must be in [0, 1]", "1.5"});
  EXPECT_EQ(sum(Dropout{.p = 1, .path = first.path}(Array::full({n}, 2))).item<float>(), 0);
}

TEST_P(OnEveryDevice, ModeIsThreadLocalAndCanBeNested) {
  EXPECT_EQ(training(), nullptr);
  {
    Training outer({.seed = 1});
    EXPECT_EQ(training()->seed, 1u);
    {
      Training inner({.seed = 2});
      EXPECT_EQ(training()->seed, 2u);
      {
        Inference teacher;
        EXPECT_EQ(training(), nullptr);
      }
      EXPECT_EQ(training()->seed, 2u);
      std::async(std::launch::async, [] { EXPECT_EQ(training(), nullptr); }).get();
      const auto context = InheritedContext::of_this_thread();
      std::async(std::launch::async, [&] {
        const InheritedContext::Scope here(context);
        EXPECT_EQ(training()->seed, 2u);
      }).get();
    }
    EXPECT_EQ(training()->seed, 1u);
    // An inherited context remains valid after the scope has ended.
    std::optional<InheritedContext> kept;
    {
      Training gone({.seed = 3});
      kept = InheritedContext::of_this_thread();
    }
    const InheritedContext::Scope here(*kept);
    EXPECT_EQ(training()->seed, 3u);
  }
  EXPECT_EQ(training(), nullptr);
}

TEST_P(OnEveryDevice, ActivationsFlattenAndContainersMatchReferenceLoops) {
  const auto x = numbers(24);
  const Array a = Array::from(x, Shape{2, 3, 4});
  EXPECT_EQ(Flatten{}(a).shape(), (Shape{2, 12}));
  EXPECT_EQ(Flatten{}(Array::zeros({0, 3, 4})).shape(), (Shape{0, 12}));
  const std::pair<std::function<Array(const Array&)>, std::function<double(double)>> cases[] = {
      {Relu{}, [](double v) { return std::max(v, 0.0); }},
      {Gelu{}, [](double v) { return v * 0.5 * (1 + std::erf(v / std::sqrt(2.0))); }},
      {Silu{}, [](double v) { return v / (1 + std::exp(-v)); }},
      {Tanh{}, [](double v) { return std::tanh(v); }},
      {Sigmoid{}, [](double v) { return 1 / (1 + std::exp(-v)); }},
      {LeakyRelu{.slope = 0.2}, [](double v) { return v > 0 ? v : 0.2 * v; }}};
  for (const auto& [layer, f] : cases) {
    std::vector<double> want;
    for (const float v : x) want.push_back(f(v));
    expect_near(layer(a), want);
  }
  const auto model = setup(sequential(dense<4, 4>, relu, Residual{Sequential{Dense{.outputs = 4}, Tanh{}}}, Softmax{}),
                           {.input = {4}});
  static_assert(std::is_same_v<decltype(model),
                               const Sequential<Dense, Elementwise, Residual<Sequential<Dense, Tanh>>, Softmax>>);
  EXPECT_EQ(paths(parameters(model)),
            (std::vector<std::string>{"0.weight", "0.bias", "2.layer.0.weight", "2.layer.0.bias"}));
  const Array h = relu(model.get<0>()(a)), inner = model.get<2>().layer.get<0>()(h);
  const auto want = exp(h + tanh(inner)).to_vector<float>(), got = model(a).to_vector<float>();
  for (std::size_t r = 0; r < 6; ++r) {
    double s = 0;
    for (std::size_t i = 0; i < 4; ++i) s += want[r * 4 + i];
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[r * 4 + i], want[r * 4 + i] / s, 1e-5);
  }
  expect_throw<ShapeError>([&] { Residual{setup(Dense{.inputs = 4, .outputs = 1})}(a); },
                           {"[Residual]", "(2, 3, 4)", "(2, 3, 1)"});
}

TEST_P(OnEveryDevice, MultiHeadAttentionMatchesReferenceLoops) {
  const std::int64_t batch = 2, tokens = 5, size = 6, heads = 2, each = 3;
  const auto x = numbers(batch * tokens * size);
  for (const bool causal : {false, true}) {
    auto layer = setup(MultiHeadAttention{.heads = heads, .causal = causal}, {.seed = 4, .input = {tokens, size}});
    layer.in_bias = Array::from(numbers(3 * size));
    const auto w = layer.in_weight.to_vector<float>(), b = layer.in_bias.to_vector<float>(),
               wo = layer.out.weight.to_vector<float>(), bo = layer.out.bias.to_vector<float>();
    EXPECT_EQ(bo, Floats(at(size)));
    std::vector<double> p(at(batch * tokens * 3 * size)), mixed(at(batch * tokens * size)), want;
    for (std::int64_t r = 0; r < batch * tokens; ++r)
      for (std::int64_t o = 0; o < 3 * size; ++o) {
        double s = b[at(o)];
        for (std::int64_t i = 0; i < size; ++i) s += double{x[at(r * size + i)]} * w[at(o * size + i)];
        p[at(r * 3 * size + o)] = s;
      }
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t hd = 0; hd < heads; ++hd)
        for (std::int64_t t = 0; t < tokens; ++t) {
          std::vector<double> weight;
          double sum = 0;
          for (std::int64_t u = 0; u < (causal ? t + 1 : tokens); ++u) {
            double s = 0;
            for (std::int64_t i = 0; i < each; ++i)
              s += p[at((n * tokens + t) * 3 * size + hd * each + i)] *
                   p[at((n * tokens + u) * 3 * size + size + hd * each + i)];
            weight.push_back(std::exp(s / std::sqrt(double(each))));
            sum += weight.back();
          }
          for (std::int64_t u = 0; u < static_cast<std::int64_t>(weight.size()); ++u)
            for (std::int64_t i = 0; i < each; ++i)
              mixed[at((n * tokens + t) * size + hd * each + i)] +=
                  weight[at(u)] / sum * p[at((n * tokens + u) * 3 * size + 2 * size + hd * each + i)];
        }
    for (std::int64_t r = 0; r < batch * tokens; ++r)
      for (std::int64_t o = 0; o < size; ++o) {
        double s = bo[at(o)];
        for (std::int64_t i = 0; i < size; ++i) s += mixed[at(r * size + i)] * wo[at(o * size + i)];
        want.push_back(s);
      }
    expect_near(layer(Array::from(x, Shape{batch, tokens, size})), want, 1e-4);
    expect_near(layer(Array::from(Floats(x.begin(), x.begin() + tokens * size), Shape{tokens, size})),
                {want.begin(), want.begin() + tokens * size}, 1e-4);
    EXPECT_EQ(paths(parameters(layer)), (std::vector<std::string>{"in_weight", "in_bias", "out.weight", "out.bias"}));
  }
  expect_throw<ShapeError>([] { setup(MultiHeadAttention{.size = 6, .heads = 4}); }, {"must divide", "6", "4"});
}

TEST_P(OnEveryDevice, ConvolutionAndPoolingMatchReferenceLoops) {
  const std::int64_t n = 2, in = 2, out = 3, rows = 5, columns = 6;
  const auto x = numbers(n * in * rows * columns);
  const Array image = Array::from(x, Shape{n, in, rows, columns});
  const auto layer = setup(Conv2d{.out = out, .kernel = {3, 2}, .stride = {2, 1}, .padding = 1},
                           {.seed = 1, .input = {in, rows, columns}});
  const auto w = layer.weight.to_vector<float>(), b = layer.bias.to_vector<float>();
  EXPECT_EQ(layer.weight.shape(), (Shape{out, in, 3, 2}));
  const Shape given = layer.output_shape({in, rows, columns});
  EXPECT_EQ(given, (Shape{out, 3, 7}));
  std::vector<double> want;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t r = 0; r < given[1]; ++r)
        for (std::int64_t c = 0; c < given[2]; ++c) {
          double s = b[at(o)];
          for (std::int64_t j = 0; j < in; ++j)
            for (std::int64_t kr = 0; kr < 3; ++kr)
              for (std::int64_t kc = 0; kc < 2; ++kc) {
                const std::int64_t row = 2 * r + kr - 1, column = c + kc - 1;
                if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
                s += double{x[at(((i * in + j) * rows + row) * columns + column)]} *
                     w[at(((o * in + j) * 3 + kr) * 2 + kc)];
              }
          want.push_back(s);
        }
  EXPECT_EQ(layer(image).shape(), (Shape{n, out, 3, 7}));
  expect_near(layer(image), want);
  std::vector<double> largest, means;
  for (std::int64_t i = 0; i < n * in; ++i)
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t c = 0; c < 3; ++c) {
        double most = -1e30, sum = 0;
        for (std::int64_t k = 0; k < 4; ++k) {
          const double v = x[at((i * rows + 2 * r + k / 2) * columns + 2 * c + k % 2)];
          most = std::max(most, v), sum += v;
        }
        largest.push_back(most), means.push_back(sum / 4);
      }
  expect_near(MaxPool2d{}(image), largest);
  expect_near(AveragePool2d{}(image), means);
  const auto model = setup(
      Sequential{Conv2d{.out = 4, .kernel = 3, .padding = 1}, BatchNorm{}, MaxPool2d{}, Flatten{}, Dense{.outputs = 2}},
      {.input = {in, rows, columns}});
  EXPECT_EQ(model.get<4>().weight.shape(), (Shape{2, 24}));
  EXPECT_EQ(model(image).shape(), (Shape{n, 2}));
  expect_throw<ShapeError>([&] { layer(Array::ones({1, 3, 5, 5})); }, {"[Conv2d]", "(1, 3, 5, 5)", "(3, 2, 3, 2)"});
  expect_throw<ShapeError>(
      [] {
        setup(Sequential{Conv2d{.out = 4, .kernel = 9}, Dense{.outputs = 2}}, {.input = {1, 5, 5}});
      },
      {"Conv2d", "(1, 5, 5)", "larger than the image"});
}

TEST_P(OnEveryDevice, CountersProduceIndependentRandomStreams) {
  const Shape shape{1001};
  EXPECT_EQ(random_bits(shape, 9, Counter(0)).to_vector<std::uint32_t>(),
            random_bits(shape, 9).to_vector<std::uint32_t>());
  const std::uint64_t numbers[] = {0, 1, 5, std::uint64_t{1} << 40};
  for (const std::uint64_t n : numbers) {
    Array memory = Array::from({n});
    const Counter here{memory}, host{n};
    const auto bits = random_bits(shape, 9, host).to_vector<std::uint32_t>();
    EXPECT_EQ(random_bits(shape, 9, here).to_vector<std::uint32_t>(), bits);
    for (const std::size_t i : {std::size_t{0}, std::size_t{6}, std::size_t{1000}})
      EXPECT_EQ(bits[i], philox4x32({static_cast<std::uint32_t>(i / 4), 0, static_cast<std::uint32_t>(n),
                                     static_cast<std::uint32_t>(n >> 32)},
                                    {9, 0})[i % 4]);
    EXPECT_EQ(random_uniform(shape, 9, here, -1, 2).to_vector<float>(),
              random_uniform(shape, 9, host, -1, 2).to_vector<float>());
    EXPECT_EQ(random_normal(shape, 9, here, 1, 3).to_vector<float>(),
              random_normal(shape, 9, host, 1, 3).to_vector<float>());
    memory.fill(5);
    EXPECT_EQ(random_bits(shape, 9, here).to_vector<std::uint32_t>(),
              random_bits(shape, 9, Counter(5)).to_vector<std::uint32_t>());
  }
  expect_throw<DtypeError>([] { Counter(Array::ones({1})); }, {"[Counter]", "f32", "u64"});
  expect_throw<ShapeError>([] { Counter(Array::zeros({2}, DType::u64)); }, {"[Counter]", "(2,)"});
  const Device other = GetParam().backend == Backend::interp ? Device{} : Device{Backend::interp, 0};
  expect_throw<DeviceError>([&] { random_bits({3}, 1, Counter(Array::zeros({1}, DType::u64)), other); },
                            {"[random_bits]", to_string(other), to_string(GetParam())});
}

}  // namespace
}  // namespace tessera
