// SPDX-License-Identifier: Apache-2.0
// Checks docs/training.md. Every C++ block of the page is contained in this file, where it is compiled and run, and its
// output is compared.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <cstdio>
#include <iostream>
#include <variant>

#include "tests/support/docs_page.h"
#include "tests/support/folder.h"

using namespace tessera;

namespace {

using Floats = std::vector<float>;

const test::DocsPage& page() {
  static const test::DocsPage one("docs/training.md");
  return one;
}

TEST(TrainingDocs, EveryBlockIsCompiledHere) { page().expect_blocks_in("tests/nn/training_docs_test.cpp", 16); }

TEST(TrainingDocs, EveryHeaderExampleIsCompiledHere) {
  for (const char* header : {"nn/compile.h", "nn/fit.h", "nn/precision.h", "nn/trainer.h", "grad/custom.h"})
    test::expect_examples_of_header(std::string("tessera/") + header, "tests/nn/training_docs_test.cpp");
}

// The following code must be identical to the code on the page.
// clang-format off

namespace first_program {
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main() {
  Array points = random_uniform({512, 2}, 7, -1, 1);
  Array inside = (sum(points * points, {1}) < 0.5).astype(DType::i32);

  auto net = setup(sequential(dense<2, 32>, relu, dense<32, 2>), {.seed = 1});
  using Net = decltype(net);
  auto loss = [](const Net& m, const auto& batch) {
    const auto& [x, y] = batch;
    return cross_entropy(m(x), y);
  };
  auto [trained, result] = fit(net, batches(points, inside, {.size = 64, .shuffle = true, .seed = 1}),
                               {.loss = loss, .optimiser = Adam(net, {.lr = 1e-2}), .epochs = 25});
  float right = accuracy(trained(points), inside).item<float>();
  std::cout << "more than 97 % right: " << std::boolalpha << (right > 0.97f) << "\n";
  return 0;
}
}  // namespace first_program

TEST(TrainingDocs, FirstProgramPrintsTheDocumentedOutput) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(first_program::main(), 0);
  page().expect("```text\n" + testing::internal::GetCapturedStdout() + "```");
}

TEST(TrainingDocs, ComputesAGradient) {
  const DeviceScope scope(Device{});
auto f = [](const Array& x) { return sum(x * x * x); };
Array x = Array::from({1.f, 2.f, 3.f});
Array slope = grad(f)(x);                        // [3, 12, 27]
auto [value, gradient] = value_and_grad(f)(x);   // 36, and the same gradient

  EXPECT_EQ(slope.to_vector<float>(), (Floats{3, 12, 27}));
  EXPECT_EQ(value.item<float>(), 36);
  EXPECT_EQ(gradient.to_vector<float>(), slope.to_vector<float>());

auto area = [](const Array& a, const Array& b) { return sum(a * b); };
auto [by_a, by_b] = grad(area, wrt<0, 1>)(Array::full({}, 2), Array::full({}, 5));  // 5, 2

auto cube = [](const Array& x) { return x * x * x; };
Array bend = grad(grad(cube))(Array::full({}, 2));  // 12

  EXPECT_EQ(by_a.item<float>(), 5);
  EXPECT_EQ(by_b.item<float>(), 2);
  EXPECT_EQ(bend.item<float>(), 12);
}

struct Network {
  Array w1, b1, w2, b2;
};
Array predict(const Network& n, const Array& x) {
  return matmul(tanh(matmul(x, n.w1) + n.b1), n.w2) + n.b2;
}

TEST(TrainingDocs, TrainsANetworkWithoutLayers) {
  const DeviceScope scope(Device{});
Network net{random_normal({1, 16}, 1), Array::zeros({16}), random_normal({16, 1}, 2, 0, 0.25), Array::zeros({1})};
Array xs = Array::arange(64, -3, 6.0 / 63).reshape({64, 1});
Array ys = sin(xs);
auto loss_of = [&](const Network& n) {
  Array wrong = predict(n, xs) - ys;
  return mean(wrong * wrong);
};
float loss = 0;
for (int step = 0; step < 500; ++step) {
  auto [now, by] = value_and_grad(loss_of)(net);
  net.w1 -= 0.1 * by.w1;
  net.b1 -= 0.1 * by.b1;
  net.w2 -= 0.1 * by.w2;
  net.b2 -= 0.1 * by.b2;
  loss = now.item<float>();  // below 0.02 at the end
}

  EXPECT_LT(loss, 0.02f);
}

TEST(TrainingDocs, TrainsAndSavesAModel) {
  const DeviceScope scope(Device{});
  const test::Folder folder;
auto model = setup(sequential(dense<2, 32>, relu, dense<32, 2>), {.seed = 1});

  page().expect(summary(model));

std::vector<std::variant<Dense, Elementwise>> hidden;
for (const std::int64_t width : {64, 48, 32}) {
  hidden.push_back(Dense{.outputs = width});
  hidden.push_back(Elementwise{tanh});
}
auto deep = setup(sequential(dense<2, 64>, tanh, hidden, dense<32, 2>), {.seed = 1, .input = {2}});  // "2.0.weight", "2.2.weight"

  EXPECT_EQ(parameters(deep)[4].path, "2.2.weight");
  EXPECT_EQ(deep(Array::ones({5, 2})).shape(), (Shape{5, 2}));
  // Uses functions with names that also exist in the C library or the kernel language.
  const auto functions = sequential(dense<2, 2>, tanh, exp, sin, abs, tessera::tanh, sqrt, relu);
  static_assert(std::is_same_v<decltype(functions), const Sequential<Dense, Elementwise, Elementwise, Elementwise, Elementwise,
                                                                     Elementwise, Elementwise, Elementwise>>);
  EXPECT_EQ(functions.get<4>()(Array::full({1}, -2)).item<float>(), 2);
  const auto many = sequential(tanh, exp, sin, abs, tanh, exp, sin, abs, tanh, exp, sin, abs, tanh, exp, sin, abs, Relu{}, relu);
  EXPECT_EQ(many.size(), 18u);

Array points = random_uniform({512, 2}, 7, -1, 1);
Array inside = (sum(points * points, {1}) < 0.5).astype(DType::i32);
Adam optimiser(model, {.lr = 1e-2});
for (std::uint64_t step = 0; step < 200; ++step) {
  Training mode({.seed = 1, .counter = Counter(step)});
  auto [loss, gradient] =
      value_and_grad([&](const auto& m) { return cross_entropy(m(points), inside); })(model);
  optimiser.step(model, gradient);
  mode.apply(model);
}
float right = accuracy(model(points), inside).item<float>();  // above 0.97

  EXPECT_GT(right, 0.97f);

save_arrays(model, folder / "model.safetensors");
save_arrays(optimiser, folder / "optimiser.safetensors");

auto again = setup(sequential(dense<2, 32>, relu, dense<32, 2>));
load_arrays(again, folder / "model.safetensors");
Adam resumed(again, {.lr = 1e-2});
load_arrays(resumed, folder / "optimiser.safetensors");

  EXPECT_EQ(again(points).to_vector<float>(), model(points).to_vector<float>());
  EXPECT_EQ(resumed.steps(), optimiser.steps());
  const auto next = [&](auto& m, auto& o) {
    const auto step = grad([&](const auto& n) { return cross_entropy(n(points), inside); })(m);
    o.step(m, step);
    return m(points).template to_vector<float>();
  };
  EXPECT_EQ(next(again, resumed), next(model, optimiser)) << "a resumed run continues with the same bits";
  const Rate rate = cosine_rate(1e-2, {.steps = 200, .warmup = 10});
  EXPECT_LT(rate.at(199), rate.at(10));
  auto smaller = setup(sequential(dense<2, 16>, relu, dense<16, 2>));
  try {
    load_arrays(smaller, folder / "model.safetensors");
    FAIL() << "loaded";
  } catch (const ArgumentError& e) {
    const std::string said = e.what();
    page().expect(said.substr(0, said.find(" (file = ")));
  }

freeze(again, "0.*");
auto by = grad([&](const auto& m) { return cross_entropy(m(points), inside); })(again);
bool left_out = by.get<0>().weight.empty();  // true: no gradient is computed for frozen parameters

  EXPECT_TRUE(left_out);
  EXPECT_FALSE(by.get<2>().weight.empty());
}

TEST(TrainingDocs, FitTrainsWithOneCall) {
  const DeviceScope scope(Device{});
  const test::Folder folder;
  const Array points = random_uniform({512, 2}, 7, -1, 1);
  const Array inside = (sum(points * points, {1}) < 0.5).astype(DType::i32);
auto net = setup(sequential(dense<2, 32>, relu, dense<32, 2>), {.seed = 1});
using Net = decltype(net);
auto loss_of = [](const Net& m, const auto& batch) {
  const auto& [x, y] = batch;
  return cross_entropy(m(x), y);
};
auto [trained, result] = fit(net, batches(points, inside, {.size = 64, .shuffle = true, .seed = 1}),
                             {.loss = loss_of, .optimiser = Adam(net, {.lr = 1e-2}), .epochs = 25});
float as_right = accuracy(trained(points), inside).item<float>();  // above 0.97

  EXPECT_GT(as_right, 0.97f);
  EXPECT_EQ(result.steps, 200u);

Array others = random_uniform({512, 2}, 8, -1, 1);
Array of_others = (sum(others * others, {1}) < 0.5).astype(DType::i32);
auto right_of = [](const Net& m, const auto& batch) { return accuracy(m(std::get<0>(batch)), std::get<1>(batch)); };
auto validation = [&](const Net& m) {
  return evaluate(m, batches(others, of_others, {.size = 256}), {{"loss", loss_of}, {"accuracy", right_of}});
};
auto [best, how] = fit(net, batches(points, inside, {.size = 64, .shuffle = true, .seed = 1}),
                       {.loss = loss_of,
                        .optimiser = Adam(net, {.lr = 1e-2}),
                        .epochs = 60,
                        .validation = validation,
                        .early_stopping = EarlyStopping{.figure = "loss", .patience = 5},
                        .callbacks = {.progress = progress_on_terminal()},
                        .csv = folder / "circle.csv",
                        .checkpoint = folder / "circle.safetensors",
                        .resume = true});
double held_out = figure(how.figures, "accuracy");  // above 0.95
Array classes = argmax(predict(best, others), 1);

  EXPECT_GT(held_out, 0.95);
  EXPECT_EQ(classes.shape(), (Shape{512}));
  EXPECT_LT(how.epochs, 60u) << "it ends early";
  EXPECT_TRUE(how.end == FitResult::End::early);
  const std::string table = test::text_of(folder / "circle.csv");
  page().expect("```text\n" + table.substr(0, table.find('\n') + 1));

Trainer<Net> trainer(net, Adam(net, {.lr = 1e-2}), loss_of, {.clip_norm = 1.0});
auto data = batches(points, inside, {.size = 64, .shuffle = true});
for (int epoch = 0; epoch < 5; ++epoch) {
  for (const auto& batch : data) trainer.step(batch);  // a different order in each epoch
  trainer.check();
}
Net now = trainer.trained();

  EXPECT_GT(accuracy(now(points), inside).item<float>(), 0.9f);
  EXPECT_EQ(trainer.steps(), 40u);
  EXPECT_GT(trainer.replays(), 25u);

Generator noise(7);
Trainer<Net> noisy(net, Adam(net, {.lr = 1e-2}), [&](const Net& m, const auto& batch) {
  const auto& [x, y] = batch;
  Array h = m(x + noise.normal(x.shape(), 0, 0.01));
  Array weight = minimum(step_number() / 1000.0, 1.0);
  return cross_entropy(h, y) + weight * mean(h * h);
});
for (const auto& batch : batches(points, inside, {.size = 64})) noisy.step(batch);

  EXPECT_EQ(noise.offset(), 8u * 64 * 2 / 4);
  EXPECT_GT(noisy.replays(), 0u);
  EXPECT_EQ(noisy.not_recorded(), "");
}

TEST(TrainingDocs, TrainsInMixedPrecision) {
  const DeviceScope scope(Device{});
  const Array points = random_uniform({512, 2}, 7, -1, 1);
  const Array inside = (sum(points * points, {1}) < 0.5).astype(DType::i32);
auto narrow = setup(sequential(dense<2, 32>, relu, dense<32, 2>), {.seed = 1});
Adam narrow_optimiser(narrow, {.lr = 1e-2});
MixedPrecision precision(narrow, {.dtype = DType::f16});
for (std::uint64_t step = 0; step < 200; ++step) {
  Training mode({.seed = 1, .counter = Counter(step)});
  auto [loss, gradient] = precision.value_and_grad(
      [&](const auto& m) { return cross_entropy(m(points), inside); })(narrow);
  precision.step(narrow_optimiser, narrow, gradient, mode);
}
float as_right = accuracy(narrow(points), inside).item<float>();  // above 0.97

  EXPECT_GT(as_right, 0.97f);
  EXPECT_EQ(precision.scale(), 65536);

using Narrow = decltype(narrow);
Trainer<Narrow> trainer(
    narrow, Adam(narrow, {.lr = 1e-3}),
    [](const Narrow& m, const auto& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); },
    {.precision = {.dtype = DType::bf16}});
for (const auto& batch : batches(points, inside, {.size = 128, .shuffle = true})) trainer.step(batch);
trainer.check();

  EXPECT_EQ(trainer.steps(), 4u);
  EXPECT_GT(accuracy(trainer.model()(points), inside).item<float>(), 0.97f);
  const auto wide = setup(sequential(dense<2, 2>), {.dtype = DType::f64});
  page().expect_error([&] { MixedPrecision(wide, {.dtype = DType::bf16}); });
}

struct Gated {
  Dense value{.inputs = 2, .outputs = 32}, gate{.inputs = 2, .outputs = 32};
  Parameter scale{{32}, init::ones()};
  Array operator()(const Array& x) const { return scale * value(x) * sigmoid(gate(x)); }
};

TEST(TrainingDocs, DefinesLayers) {
  const DeviceScope scope(Device{});
auto gated = setup(Sequential{Gated{}, Dense{.inputs = 32, .outputs = 2}}, {.seed = 1});
std::string first = parameters(gated)[0].path;  // "0.value.weight"

  EXPECT_EQ(first, "0.value.weight");
  EXPECT_EQ(gated(Array::ones({5, 2})).shape(), (Shape{5, 2}));
  const auto by = grad([](const auto& m) { return sum(m(Array::ones({5, 2}))); })(gated);
  EXPECT_EQ(by.get<0>().scale.shape(), (Shape{32}));
}

TEST(TrainingDocs, ShowsErrors) {
  const DeviceScope scope(Device{});
  const Array x = Array::from({1.f, 2.f, 3.f});
auto running = [](Array x) {
  x += 1.0;
  return sum(x);
};

  page().expect_error([&] { grad(running)(x); });

auto collecting = [](const Array& x) {
  Array all = Array::zeros({3});
  all.assign(x * 2.0);
  return sum(all);
};

  page().expect_error([&] { grad(collecting)(x); });
  EXPECT_EQ(grad([](const Array& a) { return a.item<float>() > 3 ? a : 2.0 * a; })(Array::full({}, 1)).item<float>(), 2);
  EXPECT_EQ(grad([](const Array& a) { return a * stop_gradient(a); })(Array::full({}, 3)).item<float>(), 3);
}

// docs/arrays.md, "Print arrays".
TEST(Texts, PrintEnumerationsAndFigures) {
  EXPECT_EQ(to_string(FitResult::End::early), "early");
  EXPECT_EQ(to_string(Verdict::refuted), "refuted");
  EXPECT_EQ(to_string(Property::Kind::lipschitz), "lipschitz");
  EXPECT_EQ(to_string(static_cast<Norm>(9)), "9");
  EXPECT_EQ(to_string(DType::boolean), "bool");
  EXPECT_EQ(to_string(Backend::cuda), "cuda");
  EXPECT_EQ(to_string(DeviceState::verified), "verified");
  EXPECT_EQ(to_string(StopReason::context_full), "context full");
  EXPECT_EQ(to_string(FitResult{.end = FitResult::End::stopped, .steps = 600, .epochs = 1, .loss = 0.25,
                                .figures = {{"accuracy", 0.5}}, .seconds = 2}),
            "stopped after 1 epoch, 600 steps, 2 s; loss 0.25, accuracy 0.5");
  EXPECT_EQ(to_string(FitProgress{.step = 3, .last_step = 9, .epoch = 1, .loss = 0.5, .seconds = 4}),
            "epoch 1  step 3/9  loss 0.5  4 s");
  EXPECT_EQ(to_string(ProveProgress{.boxes = 1, .waiting = 2, .share = 0.5, .seconds = 4}),
            "1 box, 2 waiting, proven for 50 % of the inputs, 4 s");
  EXPECT_EQ(to_string(LoadReport{.loaded = {"a", "b"}, .missing = {"c"}, .mismatched = {"d is f16 here"}}),
            "2 loaded; missing: c; d is f16 here");
  EXPECT_EQ(to_string(MemoryStats{.live_bytes = 1u << 20, .allocations = 1, .reuses = 2}),
            "1 MiB live, 0 bytes cached, 0 bytes at most; no limit; 1 allocation, 2 reuses");
  const std::string cpu = to_string(discover(Backend::cpu));
  EXPECT_TRUE(cpu.starts_with("cpu: ")) << cpu;
  EXPECT_NE(cpu.find("\n  cpu:0 ("), cpu.npos) << cpu;
  struct Mine { enum class Of { one }; };
  static_assert(![](auto e) { return requires { to_string(e); }; }(Mine::Of::one), "enumerations of programs are left alone");
}

// The examples in headers.

TEST(TrainingDocs, RunsTheHeaderExamplesOfFitTrainerAndPrecision) {
  const DeviceScope scope(Device{});
  const auto net = sequential(dense<2, 8>, relu, dense<8, 2>);
  using Net = std::remove_const_t<decltype(net)>;
  Array x = random_uniform({256, 2}, 7, -1, 1), y = (sum(x, {1}) < 0).astype(DType::i32);
  {
  const auto loss = [](const Net& m, const auto& batch) {
    const auto& [x, y] = batch;
    return cross_entropy(m(x), y);
  };
  auto data = batches(x, y, {.size = 128, .shuffle = true});
  auto [model, result] = fit(setup(net), data, {.loss = loss, .epochs = 5});

    EXPECT_EQ(result.steps, 10u);
  }
  const Array images = x, labels = y;
  auto model = setup(net);
  {
  Trainer trainer(model, Adam(model, {.lr = 1e-3}), [](const Net& m, const auto& batch) {
    const auto& [x, y] = batch;
    return cross_entropy(m(x), y);
  });
  for (const auto& batch : batches(images, labels, {.size = 128, .shuffle = true})) trainer.step(batch);
  trainer.check();
  model = trainer.model();

    EXPECT_EQ(trainer.steps(), 2u);
  }
  const Device gpu{};
  {
  const auto fast = compile(model, {.device = gpu, .level = CompileLevel::aggressive});
  Array y = fast(x.to(gpu));
  std::puts(to_string(fast.report()).c_str());

    EXPECT_EQ(y.shape(), (Shape{256, 2}));
  }
  const std::uint64_t steps = 3;
  Adam optimiser(model, {.lr = 1e-3});
  {
  MixedPrecision precision(model, {.dtype = DType::f16});
  for (std::uint64_t step = 0; step < steps; ++step) {
    Training mode({.seed = 1, .counter = Counter(step)});
    auto [loss, gradient] = precision.value_and_grad([&](const Net& m) { return cross_entropy(m(x), y); })(model);
    precision.step(optimiser, model, gradient, mode);
  }
  }
  EXPECT_LE(optimiser.steps(), steps);  // steps with a non-finite scaled gradient are skipped
}

TEST(TrainingDocs, DefinesAKernelWithAGradient) {
  const DeviceScope scope(Device{});
  const std::size_t n = 3;
  const Array x = Array::from({1.f, 2.f, 3.f});
  auto forward = kernel("square", [](Buffer<const float> x, Buffer<float> y) {
    y[global_id()] = x[global_id()] * x[global_id()];
  });
  auto backward = kernel("square_back", [](Buffer<const float> x, Buffer<const float>, Buffer<const float> gy,
                                           Buffer<float> gx) {
    gx[global_id()] = 2 * x[global_id()] * gy[global_id()];
  });
  auto square = with_gradient(forward, backward);
  Array y = square({n}, {n}, x);  // threads, the result's shape, inputs

  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 4, 9}));
  const auto total = [&](const Array& x) { return sum(square({n}, {n}, x)); };
  EXPECT_EQ(grad(total)(x).to_vector<float>(), (Floats{2, 4, 6}));
}

}  // namespace
