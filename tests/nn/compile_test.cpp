// SPDX-License-Identifier: Apache-2.0
// Compiled models compute the same results as the original model with fewer calls. Tested on every device, and on fake
// drivers that compute wrong results.
#include "tessera/nn/compile.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <variant>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tessera/device/placement/placement_scope.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/saved_model.h"
#include "tessera/nn/verify/certificate.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

/// Sets running statistics to values as after training, so that norms are not the identity.
template <class Model>
Model trained(Model model) {
  std::uint64_t seed = 40;
  detail::for_each_part(model, [&](ModelArray& part, const Path& at) {
    if (part.state())
      static_cast<Array&>(part) = random_uniform(part.shape(), ++seed, 0.5, 1.5).eval();
    else if (at.text().ends_with("bias"))
      static_cast<Array&>(part) = random_normal(part.shape(), ++seed).eval();
  });
  return model;
}
auto dense_model() {
  return trained(setup(sequential(dense<64, 48>, BatchNorm{}, relu, Dropout{}, dense<48, 32>, relu, dense<32, 5>),
                       {.seed = 3, .input = {64}}));
}
auto smooth_model() {
  return trained(setup(sequential(dense<64, 48>, silu, dense<48, 32>, Gelu{}, dense<32, 5>), {.seed = 5}));
}
auto image_model() {
  return trained(setup(
      Sequential{Conv2d{.out = 4, .kernel = 3, .padding = 1, .with_bias = false}, BatchNorm{}, Relu{},
                 Residual{Sequential{Conv2d{.in = 4, .out = 4, .kernel = 3, .padding = 1}, BatchNorm{.channels = 4}}},
                 MaxPool2d{}, Flatten{}, Dense{.outputs = 6}},
      {.seed = 3, .input = {2, 8, 8}}));
}

template <class Model>
std::vector<std::vector<std::byte>> bits(const Model& model) {
  std::vector<std::vector<std::byte>> out;
  for_each_array(model, [&](const Array& a) {
    out.emplace_back(a.bytes());
    if (a.size() > 0) a.as_contiguous().download(out.back().data());
  });
  return out;
}
double apart(const Array& a, const Array& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const auto u = a.astype(DType::f32).to_vector<float>(), v = b.astype(DType::f32).to_vector<float>();
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < std::min(u.size(), v.size()); ++i) {
    largest = std::max<double>(largest, std::abs(v[i]));
    worst = std::max<double>(worst, std::isnan(u[i]) ? INFINITY : std::abs(u[i] - v[i]));
  }
  return worst / largest;
}

TEST_P(OnEveryDevice, MatchesTheModelAndLeavesItUnchanged) {
  const auto model = dense_model();
  const auto images = image_model();
  const auto before = bits(model), images_before = bits(images);
  const Array x = Array::from(numbers(7 * 64), Shape{7, 64}),
              pictures = Array::from(numbers(3 * 128), Shape{3, 2, 8, 8});
  const Array y = model(x).eval(), z = images(pictures).eval();
  struct Case {
    CompilePrecision precision;
    double bound;
  };
  for (const auto& [precision, bound] :
       {Case{CompilePrecision::f32, 2e-6}, Case{CompilePrecision::f16, 0.01}, Case{CompilePrecision::bf16, 0.06},
        Case{CompilePrecision::mixed, 0.06}, Case{CompilePrecision::q8_0, 0.04}})
    for (const CompileLevel level : {CompileLevel::none, CompileLevel::standard, CompileLevel::aggressive}) {
      SCOPED_TRACE(std::string(compile_precision_name(precision)) + " " + std::string(compile_level_name(level)));
      const Compiled fast = compile(model, {.level = level, .precision = precision});
      const Compiled seeing = compile(images, {.level = level, .precision = precision});
      for (int i = 0; i < 3; ++i) {
        const Array got = fast(x), seen = seeing(pictures);
        EXPECT_EQ(got.dtype(), DType::f32);
        if (precision == CompilePrecision::f32 && level != CompileLevel::aggressive) {  // bit-identical
          EXPECT_EQ(bits(got), bits(y)) << "call " << i;
          EXPECT_EQ(bits(seen), bits(z)) << "call " << i;
        } else {
          EXPECT_LT(apart(got, y), bound) << "call " << i;
          EXPECT_LT(apart(seen, z), bound) << "call " << i;
          EXPECT_GT(apart(got, y), 0) << "nothing was changed";
        }
      }
    }
  EXPECT_EQ(bits(model), before);
  EXPECT_EQ(bits(images), images_before);
}

TEST_P(OnEveryDevice, FoldsActivationsIntoThePreviousLayer) {
  const auto model = smooth_model();
  const Array x = Array::from(numbers(2 * 64), Shape{2, 64});
  EXPECT_EQ(bits(compile(model)(x)), bits(model(x)));
  const Compiled fast = compile(model, {.level = CompileLevel::aggressive});
  EXPECT_LT(apart(fast(x), model(x)), 2e-6);
  EXPECT_EQ(fast.report().layers.at(0).note, "includes Elementwise 1");
  EXPECT_EQ(fast.report().layers.at(2).note, "includes Gelu 3");
  EXPECT_LT(fast.report().pieces, compile(model).report().pieces);
}

TEST_P(OnEveryDevice, SkipsZerosAfterReluForSingleSamples) {
  const Device device = GetParam();
  const DeviceScope scope(device);
  auto model = trained(setup(sequential(dense<24, 256>, BatchNorm{}, relu, Dropout{}, dense<256, 150>, Relu{},
                                        dense<150, 230>, relu, dense<230, 600>, relu, dense<600, 60>, dense<60, 560>),
                             {.seed = 5, .input = {24}}));
  const bool skips = device.backend == Backend::cpu;
  const auto notes = [&](const Compiled& compiled) {
    const std::string text = to_string(compiled.report());
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find("single samples skip zeros after relu", at)) != text.npos; ++at) ++n;
    return n;
  };
  const auto both = [&](const auto& of, const Array& x) {
    const Compiled standard = compile(of), fast = compile(of, {.level = CompileLevel::aggressive});
    const Array y = of(x).eval();
    for (int call = 0; call < 2; ++call) {  // the first call runs directly, the second one is replayed
      EXPECT_EQ(bits(standard(x)), bits(y));
      EXPECT_LT(apart(fast(x), y), 2e-6);
    }
    return std::pair(standard, fast);
  };
  for (std::uint64_t seed = 1; seed < 3; ++seed) {
    const auto [standard, fast] = both(model, random_normal({1, 24}, seed).eval());
    // The first Dense follows a norm, which is only folded at `aggressive`. The last one does not follow a relu.
    EXPECT_EQ(notes(standard), skips ? 3u : 0u) << to_string(standard.report());
    EXPECT_EQ(notes(fast), skips ? 4u : 0u) << to_string(fast.report());
    EXPECT_EQ(notes(compile(model, {.level = CompileLevel::none})), 0u);
  }
  both(model, random_normal({3, 24}, 9).eval());
  const Array one = random_normal({1, 24}, 10).eval();
  // Tests inputs without zeros, inputs that are all zeros, and NaN, which must not be skipped.
  for (const float bias : {100.f, -100.f}) {
    model.get<4>().bias = Array::full({150}, bias);
    both(model, one);
  }
  for (const float v : compile(model)(Array::full({1, 24}, std::nan(""))).to_vector<float>())
    EXPECT_TRUE(std::isnan(v));
  // An infinite weight times 0 is NaN, as in the original model, so zeros must not be skipped.
  auto weight = model.get<8>().weight.to_vector<float>();
  weight[7] = std::numeric_limits<float>::infinity();
  model.get<8>().weight = Array::from(weight, Shape{600, 230});
  model.get<6>().bias = Array::full({230}, -100.f);
  const Compiled without = compile(model);
  EXPECT_EQ(notes(without), skips ? 2u : 0u);
  const auto y = model(one).to_vector<float>(), z = without(one).to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(z[i]), std::isnan(y[i])) << i;
}

TEST_P(OnEveryDevice, ReplaysCallsWithoutOverwritingEarlierResults) {
  const Compiled fast = compile(dense_model(), {});
  EXPECT_TRUE(fast.report().recorded) << fast.report().not_recorded;
  const Array x = Array::from(numbers(64), Shape{1, 64}), other = Array::from(numbers(64), Shape{1, 64});
  const std::uint64_t before = fast.replays();
  const Array y = fast(x);
  const auto values = y.to_vector<float>();
  const Array z = fast(other);
  EXPECT_EQ(fast.replays(), before + 2) << "compile() has recorded this shape";
  EXPECT_EQ(y.to_vector<float>(), values) << "a later call has overwritten the result";
  EXPECT_NE(z.to_vector<float>(), values);
  EXPECT_EQ(fast(x).to_vector<float>(), values);
  // Uses more shapes than are cached.
  for (int round = 0; round < 2; ++round)
    for (std::int64_t n : {2, 3, 4, 5, 6, 1, 0}) EXPECT_EQ(fast(Array::zeros({n, 64})).shape(), (Shape{n, 5}));
  EXPECT_EQ(fast(x).to_vector<float>(), values);
  // A non-contiguous view.
  const Array wide = Array::from(numbers(128), Shape{64, 2}).transpose();
  EXPECT_LT(apart(fast(wide), dense_model()(wide)), 1e-6);
}

struct Counting {
  std::shared_ptr<double> factor = std::make_shared<double>(1);
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  int each = 1;
  Array operator()(const Array& x) const {
    if (++*calls % each == 0) *factor += 1;
    return x * *factor;
  }
};
TEST_P(OnEveryDevice, DoesNotRecordModelsThatUseChangingHostValues) {
  const Array x = Array::ones({2, 3});
  const auto counts = setup(Sequential{Dense{.inputs = 3, .outputs = 4}, Counting{}}, {.seed = 1});
  const Compiled each = compile(counts);
  const Array first = each(x), second = each(x);
  EXPECT_NE(bits(first), bits(second));
  EXPECT_EQ(each.replays(), 0u);
  test::expect_contains(each.report().not_recorded, {"differs from the recorded one", "instead of", "host value"});
  EXPECT_FALSE(each.report().recorded);
  // A change after recording is detected by the next pass that is compared with the recording.
  const auto factor = std::make_shared<double>(1);
  const Compiled fast = compile(
      setup(Sequential{Dense{.inputs = 3, .outputs = 4}, Counting{.factor = factor, .each = 1 << 30}}, {.seed = 1}));
  fast(x);
  *factor = 3;
  for (int i = 0; i < 16 + 1; ++i) fast(x);
  EXPECT_EQ(fast.replays(), 16u);
  EXPECT_FALSE(fast.report().recorded);
}

TEST_P(OnEveryDevice, ReportsTheChangesToEachLayer) {
  const Compiled fast = compile(image_model(), {.level = CompileLevel::aggressive, .input = {2, 8, 8}});
  const CompileReport r = fast.report();
  EXPECT_EQ(r.device, GetParam());
  EXPECT_EQ(r.input, (Shape{1, 2, 8, 8}));
  std::map<std::string, CompileReport::Layer> by;
  for (const auto& l : r.layers) by[l.path] = l;
  ASSERT_EQ(by.size(), 9u) << to_string(r);
  EXPECT_EQ(by["0"].kind, "Conv2d");
  EXPECT_EQ(by["0"].note, "includes BatchNorm 1");
  EXPECT_EQ(by["1"].note, "part of 0");
  EXPECT_EQ(by["3.layer.0"].note, "includes BatchNorm 3.layer.1");
  EXPECT_EQ(by["6"].bytes, (64 * 6 + 6) * 4u);
  EXPECT_GT(by["0"].kernels, 0u);
  EXPECT_GT(by["6"].kernels, 0u);
  std::uint64_t kernels = 0;
  for (const auto& l : r.layers) kernels += l.kernels;
  EXPECT_LE(kernels, r.pieces + 2) << "recorded passes fuse as much";
  test::expect_contains(to_string(r),
                        {"layer", "Conv2d", "part of 0", to_string(GetParam()), "a call is one replay of"});
  const std::uint64_t unfolded = compile(image_model(), {.input = {2, 8, 8}}).report().pieces;
  EXPECT_LT(r.pieces, unfolded) << "folding saves kernels";

  const CompileReport folded = compile(dense_model(), {.level = CompileLevel::aggressive}).report();
  EXPECT_EQ(folded.layers.at(0).note, "includes BatchNorm 1; includes Elementwise 2");
  EXPECT_EQ(folded.layers.at(2).computed_in, "0");
  EXPECT_EQ(folded.layers.at(4).note, "includes Elementwise 5");
  EXPECT_EQ(compile(dense_model()).report().layers.at(0).note, "");

  const CompileReport packed = compile(dense_model(), {.precision = CompilePrecision::q8_0}).report();
  by.clear();
  for (const auto& l : packed.layers) by[l.path] = l;
  EXPECT_EQ(by["0"].note, "q8_0") << "the relu follows a norm";
  EXPECT_LT(by["0"].bytes, 64 * 48 * 2u);
  EXPECT_EQ(by["4"].note, "includes Elementwise 5; f32: the number of inputs, 48, is not a multiple of 32");
  EXPECT_EQ(by["3"].note, "returns x in inference");
}

// The number of layers is known at compile time for a tuple, and at run time for a vector.
TEST_P(OnEveryDevice, SequentialOfVectorMatchesSequentialOfTuple) {
  using Layer = std::variant<Dense, BatchNorm, Relu, Dropout, Elementwise>;
  const SetupOptions options{.seed = random(), .input = {6}};
  auto fixed =
      setup(sequential(dense<6, 16>, BatchNorm{}, Relu{}, Dropout{}, dense<16, 12>, tanh, dense<12, 3>), options);
  std::vector<Layer> layers = {Dense{.outputs = 16}, BatchNorm{}, Relu{}, Dropout{}};
  for (const std::int64_t width : {12, 3}) {
    layers.push_back(Dense{.outputs = width});
    if (width != 3) layers.push_back(Elementwise{tanh});
  }
  auto open = setup(Sequential{std::move(layers)}, options);
  ASSERT_EQ(open.size(), 7u);
  EXPECT_EQ(open.output_shape({6}), (Shape{3}));
  EXPECT_EQ(std::get<Dense>(open[4]).weight.shape(), (Shape{12, 16}));
  EXPECT_EQ(summary(open), summary(fixed));
  EXPECT_EQ(describe(open), describe(fixed));
  EXPECT_EQ(bits(open), bits(fixed)) << "arrays must have the same paths and seeds";

  const Array x = Array::from(numbers(5 * 6), Shape{5, 6});
  const Array classes = Array::from<std::int32_t>({0, 1, 2, 1, 0});
  const auto trained_once = [&](auto model) {
    freeze(model, "0.*");
    Adam optimiser(model, {.lr = 0.1});
    const Training mode({.seed = 7});
    const auto [loss, gradient] = value_and_grad([&](const auto& m) { return cross_entropy(m(x), classes); })(model);
    optimiser.step(model, gradient);
    mode.apply(model);
    return model;
  };
  const auto before = bits(fixed);
  fixed = trained_once(fixed), open = trained_once(open);
  EXPECT_NE(bits(fixed), before);
  EXPECT_EQ(bits(open), bits(fixed));
  EXPECT_EQ(open(x).template to_vector<float>(), fixed(x).template to_vector<float>());

  // Both can be saved, compiled and proven.
  const test::Folder folder;
  const std::string file = folder / "model.safetensors";
  save_model(fixed, file);
  auto loaded = map_arrays(open, [](const Array& a) { return Array::zeros(a.shape(), a.dtype(), a.device()); });
  load_model(loaded, file);
  EXPECT_EQ(bits(loaded), bits(fixed));
  for (const CompileLevel level : {CompileLevel::standard, CompileLevel::aggressive}) {
    const Compiled a = compile(fixed, {.level = level}), b = compile(open, {.level = level});
    EXPECT_EQ(b(x).to_vector<float>(), a(x).to_vector<float>());
    EXPECT_EQ(to_string(b.report()), to_string(a.report()));
  }
  const InputBox box = InputBox::of({6}, -0.01f, 0.01f);
  const Proof proof = prove(open, bounded(-100, 100), box);
  ASSERT_EQ(proof.verdict, Verdict::proven) << to_string(proof);
  EXPECT_TRUE(check_certificate(fixed, certificate_of(open, proof)).holds);

  // Tests nested layers of one type on several devices, and an empty Sequential.
  auto deep = setup(sequential(dense<6, 4>, std::vector(3, Residual{Dense{4, 4}}), dense<4, 2>), {.seed = 1});
  EXPECT_EQ(parameters(deep)[2].path, "1.0.layer.weight");
  deep.template get<1>().place(std::vector<Device>(3, GetParam()));
  EXPECT_EQ(deep(x).shape(), (Shape{5, 2}));
  expect_throw<ArgumentError>([&] { deep.template get<1>().place({GetParam()}); }, {"the number of devices differs"});
  EXPECT_EQ(Sequential{std::vector<Dense>{}}(x).template to_vector<float>(), x.to_vector<float>());
}

TEST_P(OnEveryDevice, RejectsInvalidOptionsAndInputs) {
  const auto model = dense_model();
  const Compiled fast = compile(model);
  const Device elsewhere = GetParam().backend == Backend::interp ? Device{Backend::cpu, 0} : Device{Backend::interp, 0};
  expect_throw<DeviceError>(
      [&] {
        fast(Array::zeros({1, 64}, DType::f32, elsewhere));
      },
      {"compiled for", to_string(GetParam()), to_string(elsewhere)});
  expect_throw<ArgumentError>(
      [&] {
        grad([&](const Array& x) { return sum(fast(x)); })(Array::zeros({1, 64}));
      },
      {"no gradient"});
  expect_throw<ShapeError>([&] { fast(Array::zeros({1, 63})); }, {"(1, 63)", "64 elements in the last axis"});
  EXPECT_EQ(fast(Array::zeros({1, 64})).shape(), (Shape{1, 5})) << "continues after an error";
  expect_throw<ShapeError>(
      [&] {
        const auto rows = setup(sequential(dense<4, 6>, BatchNorm{.channels = 6}), {.seed = 1});
        compile(rows, {.level = CompileLevel::aggressive})(Array::zeros({2, 6, 4}));
      },
      {"CompileLevel::standard"});
  expect_throw<DtypeError>(
      [&] {
        const DeviceScope cpu(Device{Backend::cpu, 0});
        compile(setup(sequential(dense<4, 6>), {.seed = 1, .dtype = DType::f64}), {.precision = CompilePrecision::f16});
      },
      {"0.weight", "f64"});
  expect_throw<ArgumentError>([&] { compile(sequential(relu), {.verify = true}); }, {".input"});
  expect_throw<DeviceError>([&] { compile(model, {.device = Device{Backend::interp, 99}}); }, {"interp:99"});
  // The thread's Training scope has no effect.
  const Training mode({.seed = 1});
  EXPECT_EQ(bits(fast(Array::zeros({1, 64}))), bits(fast(Array::zeros({1, 64}))));
}

TEST_P(OnEveryDevice, SerialisesConcurrentCalls) {
  const auto model = dense_model();
  const Compiled fast = compile(model);
  std::vector<Array> in;
  std::vector<std::vector<float>> wanted;
  for (int t = 0; t < 4; ++t) {
    in.push_back(Array::from(numbers(64 * (1 + t % 2)), Shape{1 + t % 2, 64}).eval());
    wanted.push_back(fast(in.back()).to_vector<float>());
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) wrong += fast(in[t]).to_vector<float>() != wanted[t];
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(OnEveryDevice, VerifiesEachLayer) {
  for (const CompilePrecision precision :
       {CompilePrecision::f32, CompilePrecision::f16, CompilePrecision::mixed, CompilePrecision::q8_0}) {
    const Compiled fast =
        compile(dense_model(), {.level = CompileLevel::aggressive, .precision = precision, .verify = true});
    ASSERT_TRUE(fast.report().worst);
    EXPECT_LT(*fast.report().worst, 0.1);
  }
  EXPECT_LT(
      *compile(image_model(), {.level = CompileLevel::aggressive, .verify = true, .input = {2, 8, 8}}).report().worst,
      1e-5);
  // Tests a single sample without a batch axis.
  const auto model = setup(sequential(dense<64, 96>, relu, dense<96, 10>), {.seed = 3});
  EXPECT_LT(*compile(model, {.verify = true, .sample = random_normal({64}, 5)}).report().worst, 1e-5);
}

// A layer that computes wrong results on one device only, as with a broken driver.
struct Broken {
  Device where;
  Array operator()(const Array& x) const {
    if (x.device() != where) return x * 2.0;
    Array y = (x * 2.0).eval();
    y.slice(1, 3, 4).fill(1000);
    return y;
  }
  Shape output_shape(const Shape& input) const { return input; }
};
}  // namespace
template <>
inline constexpr bool holds_no_arrays<Broken> = true;
namespace {

TEST_P(OnEveryDevice, ReportsTheLayerAndElementOfAWrongResult) {
  const auto model = setup(Sequential{Dense{.inputs = 8, .outputs = 6}, Broken{GetParam()}, Dense{.outputs = 2}},
                           {.seed = 1, .input = {8}});
  EXPECT_NO_THROW(compile(model));
  try {
    compile(model, {.verify = true});
    FAIL() << "no fault was found";
  } catch (const LayerFault& e) {
    EXPECT_EQ(e.layer(), "1") << e.what();
    EXPECT_EQ(e.element() % 6, 3) << e.what();
    test::expect_contains(e.what(), {"layer = 1 (", "element", to_string(GetParam()), "1000"});
  }
}

// Runs with a fake driver in which every kernel writes a wrong value to one element of its result, at seven tenths of
// its length. The first kernel is correct, because it tests the device.
TEST(WrongDriverResults, AreDetectedByVerify) {
  const char* fault = std::getenv("TESSERA_FAKE_FAULT");
  if (fault == nullptr || std::strcmp(fault, "wrong=2+") != 0) GTEST_SKIP() << "no driver computes wrong results";
  const DeviceScope scope(testing::all_devices().front());
  ASSERT_FALSE(is_built_in(current_device().backend));
  const auto model = [&] {
    const DeviceScope cpu(Device{Backend::cpu, 0});
    return setup(sequential(dense<8, 128>, relu, dense<128, 4>), {.seed = 2});
  }();
  try {
    compile(model, {.device = current_device(), .verify = true});
    FAIL() << "no fault was found";
  } catch (const LayerFault& e) {
    EXPECT_EQ(e.layer(), "0") << e.what();
    EXPECT_EQ(e.element(), 358) << "seven tenths of 4 x 128: " << e.what();
  }
}

}  // namespace
}  // namespace tessera
