// SPDX-License-Identifier: Apache-2.0
// Tests each kind of property, the reasons for unknown results, and invalid arguments on every device.
#include <cmath>
#include <limits>

#include "tessera/array/functions.h"
#include "tessera/nn/compile.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/verify/certificate.h"
#include "tests/llm/varied_model.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::inputs_of;
using test::OnEveryDevice;
using test::varied;
TESSERA_ON_EVERY_DEVICE();

TEST_P(OnEveryDevice, ProvesAndRefutesRobustness) {
  // The class is the sign of x0 - x1, which is 0.6 at the sample. The other class is at distance 0.3 in the infinity
  // norm, 0.42 in the 2-norm and 0.6 in the 1-norm.
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
  // Tests all inputs of a box. The class changes within the first box, and outside of the second box at a distance of
  // 0.05.
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
  // If two outputs are equal, the class is the first of them.
  auto equal = setup(sequential(dense<2, 2>), {.seed = 1});
  equal.get<0>().weight = Array::zeros({2, 2});
  equal.get<0>().bias = Array::from<float>({1, 1});
  EXPECT_EQ(prove(equal, robust(0.1), at).kept_class, 0);
}

TEST_P(OnEveryDevice, ProvesThatOutputsAreFiniteOrProbabilities) {
  auto model = varied(setup(sequential(dense<3, 8>, gelu, dense<8, 4>, Softmax{}), {.seed = 1}), random);
  EXPECT_EQ(prove(model, finite(), InputBox::of({3}, -100, 100)).verdict, Verdict::proven);
  EXPECT_EQ(prove(model, probabilities(), InputBox::of({3}, -3, 3)).verdict, Verdict::proven);
  const auto logits = sequential(dense<3, 8>, relu, dense<8, 4>);
  const auto plain = varied(setup(logits, {.seed = 1}), random);
  const Proof none = prove(plain, probabilities(), InputBox::of({3}, -3, 3));
  ASSERT_EQ(none.verdict, Verdict::refuted);
  EXPECT_FALSE(none.counterexample->what.empty());
  // Inputs of 1e38 make the outputs overflow.
  const Proof large = prove(plain, finite(), InputBox::of({3}, -3e38f, 3e38f), {.seconds = 2, .boxes = 500});
  EXPECT_EQ(large.verdict, Verdict::refuted) << to_string(large);
  // A NaN in a parameter is found.
  auto broken = setup(logits, {.seed = 1});
  broken.get<2>().bias = Array::from<float>({0, 0, NAN, 0});
  const Proof nan = prove(broken, finite(), InputBox::of({3}, -1, 1));
  EXPECT_EQ(nan.verdict, Verdict::refuted);
  EXPECT_NE(nan.counterexample->what.find("output 2 is nan"), std::string::npos) << nan.counterexample->what;
}

TEST_P(OnEveryDevice, ProvesBoundsEqualToTheOutputRange) {
  const auto of_two = [&](auto layers) {
    return varied(setup(std::move(layers), {.seed = random(), .input = {2}}), random);
  };
  const InputBox box = InputBox::of({2}, -1, 1);
  const auto proven = [&](const auto& model, const Property& property, const InputBox& inputs) {
    const Proof proof = prove(model, property, inputs, {.seconds = 5, .boxes = 1000});
    EXPECT_EQ(proof.verdict, Verdict::proven) << to_string(property) << ": " << to_string(proof);
    if (proof.verdict != Verdict::proven) return;
    const CertificateCheck check = check_certificate(model, certificate_of(model, proof));
    EXPECT_TRUE(check.holds) << to_string(check);
  };
  auto positive = of_two(sequential(dense<2, 3>, relu, dense<3, 2>));
  positive.template get<2>().weight = abs(positive.template get<2>().weight);
  positive.template get<2>().bias = Array::from<float>({0, 0.5f});
  for (const double most : {1e6, 1e30}) {
    proven(of_two(sequential(dense<2, 3>, relu)), bounded(0, most), box);
    proven(of_two(sequential(dense<2, 3>, relu)), inequality({-1, -0.1, -7}, 0), box);
    proven(of_two(sequential(dense<2, 3>, sigmoid)), bounded(0, most), box);
    proven(positive, bounded(0, most), box);
    proven(of_two(Sequential{Dense{2, 2}, Relu{}, Residual{Sequential{Dense{2, 2}, Relu{}}}}), bounded(0, most), box);
  }
  const auto pooled = varied(
      setup(Sequential{Conv2d{.out = 1, .kernel = 2}, Relu{}, MaxPool2d{}, Flatten{}}, {.seed = 1, .input = {1, 5, 5}}),
      random);
  proven(pooled, bounded(0, 1e6), InputBox::of({1, 5, 5}, -1, 1));
  // A confident classifier. Some of its outputs are 0.
  auto sure = of_two(sequential(dense<2, 8>, relu, dense<8, 3>, Softmax{}));
  sure.template get<2>().weight = sure.template get<2>().weight * 1000;
  proven(sure, probabilities(), box);
  proven(sure, bounded(-1e-300, 1.001), box);

  // Bounds that are violated by one float, or by less than the resolution of f64, must not be proven.
  auto small = setup(sequential(dense<1, 2>, relu), {.seed = 1});
  small.template get<0>().weight = Array::from<float>({-1e-30f, 1e-30f}, Shape{2, 1});
  small.template get<0>().bias = Array::zeros({2});
  const double least = std::numeric_limits<double>::denorm_min();
  for (const Property& property : {bounded(least, 1), bounded(-1, 0.9e-30), inequality({-1, 0}, -least),
                                   inequality({0, 1e-300}, 0), inequality({-1, 1e-300}, 0)})
    EXPECT_NE(prove(small, property, InputBox::of({1}, -1, 1), {.boxes = 100}).verdict, Verdict::proven)
        << to_string(property);
  // The same applies to violations below the resolution of the bound itself. The exact output range is [0, 1].
  const auto same = setup(sequential(Flatten{}), {.seed = 1, .input = {2}});
  EXPECT_NE(prove(same, inequality({1, 0x1p-501}, 1), InputBox::of({2}, 0, 1), {.boxes = 100}).verdict,
            Verdict::proven);
}

TEST_P(OnEveryDevice, ReportsTheReasonForUnknownResults) {
  const InputBox box = InputBox::of({64}, -1, 1), small = InputBox::of({2}, -1, 1);
  const auto said = [](const Proof& proof) {
    EXPECT_EQ(proof.verdict, Verdict::unknown) << to_string(proof);
    return proof.reason;
  };
  using test::holds;
  const auto smooth = varied(setup(sequential(dense<2, 6>, relu, dense<6, 2>), {.seed = 1}), random);
  // Layers that compile has folded or packed.
  auto folded = smooth;
  folded.get<0>().folded = Activation::relu;
  EXPECT_TRUE(holds(said(prove(folded, bounded(-100, 100), small)), "layer 0 (Dense): it is folded"));
  const auto dense64 = setup(sequential(dense<64, 64>), {.seed = 1});
  EXPECT_TRUE(holds(said(prove(compile(dense64), bounded(-1e6, 1e6), box)), "it is a compiled model"));
  // Dtypes other than f32, unsupported functions, and models that are not Sequential.
  const auto narrow = setup(sequential(dense<2, 4>), {.seed = 1, .dtype = DType::bf16});
  EXPECT_TRUE(holds(said(prove(narrow, bounded(-100, 100), small)), "its arrays are bf16"));
  const auto odd = setup(Sequential{Dense{2, 4}, Elementwise{static_cast<Array (*)(Array)>(sin)}}, {.seed = 1});
  EXPECT_TRUE(holds(said(prove(odd, bounded(-2, 2), small)), "its function is not relu"));
  struct Own {
    Dense layer{2, 2};
    Array operator()(const Array& x) const { return layer(x) * layer(x); }
  };
  const Own own = setup(Own{}, {.seed = 1});
  EXPECT_TRUE(holds(said(prove(own, bounded(-1, 1e6), small)), "bounds of such layers are not supported"));
  EXPECT_EQ(prove(own, bounded(0.1, 0.2), small).verdict, Verdict::refuted)
      << "the model can be run, so a counterexample can be found";
  // Properties that are only tested.
  EXPECT_TRUE(holds(said(prove(smooth, lipschitz(1e4, 0.1), small)), "is tested, not proven"));
  // Limits, and the progress when they were reached.
  const auto deep =
      varied(setup(sequential(dense<64, 64>, relu, dense<64, 64>, relu, dense<64, 1>), {.seed = 1}), random);
  const float some = max(deep(inputs_of(box, 200, random))).item<float>();
  const Property close = bounded(-1e6, some + 1);
  EXPECT_TRUE(holds(said(prove(deep, close, box, {.boxes = 20, .attack = false})), "stopped after 20 boxes"));
  EXPECT_TRUE(holds(said(prove(deep, close, box, {.seconds = 0, .attack = false})), "stopped after 0 s"));
  EXPECT_TRUE(holds(said(prove(deep, close, box, {.bytes = 10, .attack = false})), "out of memory"));
  // The bound is within the rounding error: the minimum over the box is 0, and f32 rounding makes it impossible to show
  // that the outputs are never below 0.
  auto exact = setup(sequential(dense<2, 1>), {.seed = 1});
  exact.get<0>().weight = Array::from<float>({1, 1}, Shape{1, 2});
  exact.get<0>().bias = Array::from<float>({2});
  EXPECT_TRUE(holds(said(prove(exact, bounded(0, 10), small)), "within the rounding error"));
}

TEST_P(OnEveryDevice, ReportsProgressAndAppliesOptions) {
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
  if (proof.verdict == Verdict::proven) {
    EXPECT_EQ(proof.share, 1);
  }
  // The same query must have the same result.
  const Proof again = prove(model, bounded(-1e6, high + 0.3f * (high - low)), box, {.seconds = 30});
  if (proof.verdict == Verdict::proven) {
    EXPECT_EQ(again.tree, proof.tree);
    EXPECT_EQ(again.low, proof.low);
    EXPECT_EQ(again.margin, proof.margin);
  }
}

TEST_P(OnEveryDevice, FindsCounterexamplesInData) {
  const auto model = varied(setup(sequential(dense<3, 8>, relu, dense<8, 2>), {.seed = 1}), random);
  const Array data = inputs_of(InputBox::of({3}, -1, 1), 2000, random);
  EXPECT_FALSE(find_counterexample(model, finite(), data));
  EXPECT_FALSE(find_counterexample(model, lipschitz(1e4, 0.1), data));
  const auto steep = find_counterexample(model, lipschitz(1e-3, 0.1), data);
  ASSERT_TRUE(steep);
  EXPECT_TRUE(steep->other_input);
  // The output of this model increases with input 0 and decreases with input 1.
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
  // A user-defined predicate.
  const Property small = predicate(
      "y is below 2 |x|", [](const Array& x, const Array& y) { return max(abs(y), {1}) < 2 * max(abs(x), {1}); });
  const auto found = find_counterexample(model, small, data * 0.01);
  ASSERT_TRUE(found) << "near 0 the biases exceed the bound";
  EXPECT_EQ(found->input.shape(), (Shape{1, 3}));
  const auto flips = find_counterexample(model, robust(2), data.slice(0, 0, 20));
  EXPECT_EQ(prove(slope, monotone(1), InputBox::of({2}, -1, 1)).verdict, Verdict::refuted);
  static_cast<void>(flips);
}

// GPUs may use a vendor library for a matrix product of 2^33 operations.
TEST_P(OnEveryDevice, ReportsUnknownIfAVendorLibraryMayBeUsed) {
  const auto wide = setup(sequential(dense<1024, 1024>), {.seed = 1});
  const InputBox box = InputBox::of({1024}, -1, 1);
  const Proof small = prove(wide, finite(), box), large = prove(wide, finite(), box, {.batch = 4096});
  EXPECT_EQ(small.verdict, Verdict::proven) << to_string(small);
  if (is_built_in(GetParam().backend) || device_info(GetParam()).kind == DeviceKind::cpu) {
    EXPECT_EQ(large.verdict, Verdict::proven) << to_string(large);
  } else {
    EXPECT_EQ(large.verdict, Verdict::unknown);
    EXPECT_TRUE(test::holds(large.reason, "may use a vendor library"));
  }
}

TEST(Prove, RejectsInvalidArguments) {
  const DeviceScope scope(Device{});
  const auto model = setup(sequential(dense<2, 3>), {.seed = 1});
  const InputBox box = InputBox::of({2}, -1, 1);
  expect_throw<ShapeError>([&] { prove(model, finite(), InputBox::of({3}, 0, 1)); }, {"prove", "layer", "(3,)"});
  expect_throw<ArgumentError>([&] { prove(model, inequality({1, 2}, 0), box); }, {"one coefficient for each output"});
  expect_throw<ArgumentError>([&] { prove(model, monotone(2), box); }, {"no input with this index"});
  expect_throw<ArgumentError>([] { InputBox::of({2}, 1, 0); }, {"must not exceed"});
  expect_throw<ArgumentError>([] { InputBox::of({2}, 0, INFINITY); }, {"must be finite"});
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
