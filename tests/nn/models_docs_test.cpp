// SPDX-License-Identifier: Apache-2.0
// Checks docs/models.md. Every C++ block of the page is contained in this file, where it is compiled and run.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include "tests/support/docs_page.h"
#include "tests/support/folder.h"

using namespace tessera;

namespace {

const test::DocsPage& page() {
  static const test::DocsPage one("docs/models.md");
  return one;
}

TEST(ModelsDocs, EveryBlockIsCompiledHere) { page().expect_blocks_in("tests/nn/models_docs_test.cpp", 6); }

// The following code must be identical to the code on the page.
// clang-format off

TEST(ModelsDocs, CompilesVerifiesAndSaves) {
  const DeviceScope scope(Device{});
auto model = setup(sequential(dense<64, 96>, BatchNorm{}, relu, Dropout{}, dense<96, 10>), {.seed = 1, .input = {64}});
Compiled fast = compile(model, {.level = CompileLevel::aggressive});
Array y = fast(random_normal({1, 64}, 2));
std::string report = to_string(fast.report());

  EXPECT_EQ(y.shape(), (Shape{1, 10}));
  page().expect(report);

Compiled checked = compile(model, {.level = CompileLevel::aggressive, .verify = true});
double worst = checked.report().worst.value();  // largest error of the result, relative to its largest element

  EXPECT_LT(worst, 1e-5);
  const test::Folder folder;
  const std::string file = folder / "model.safetensors";

save_model(model, file);
auto loaded = setup(sequential(dense<64, 96>, BatchNorm{}, relu, Dropout{}, dense<96, 10>), {.seed = 2, .input = {64}});
load_model(loaded, file);
auto manifest = manifest_of(SafetensorsFile::open(file));  // versions, and the dtype, shape and SHA-256 of each array

  EXPECT_EQ(manifest->arrays.at("0.weight").shape, (Shape{96, 64}));
  const Array sample = random_normal({2, 64}, 3);
  EXPECT_EQ(loaded(sample).to_vector<float>(), model(sample).to_vector<float>());

NameMap names = names_of_pytorch();  // for example, *.running_var becomes *.running_variance
names.insert(names.end(), {{"fc1.*", "0.*"}, {"norm.*", "1.*"}, {"fc2.*", "3.*"}, {"test.*", ""}});
auto theirs = setup(sequential(dense<6, 8>, LayerNorm{}, relu, dense<8, 3>), {.seed = 1, .input = {6}});
load_model(theirs, "tests/data/pytorch_named.safetensors", {.names = names});

  const SafetensorsFile expected = SafetensorsFile::open("tests/data/pytorch_named.safetensors");
  EXPECT_LT(max(abs(theirs(expected.load("test.x")) - expected.load("test.y"))).item<float>(), 1e-5f);
}

TEST(ModelsDocs, TrainsOnSeveralDevices) {
  const DeviceScope scope(Device{});
  using Net = Sequential<Dense, Elementwise, Dense>;
  using Batch = std::tuple<Array, Array>;
  const Net net = setup(sequential(dense<16, 32>, relu, dense<32, 4>), {.seed = 1});
  const Array x = random_uniform({256, 16}, 3, -1, 1).eval();
  const Array labels = argmax(x.slice(1, 0, 4), 1).astype(DType::i32).eval();

FitOptions<Net, Batch> options;
options.loss = [](const Net& m, const Batch& b) {
  const Array scores = m(std::get<0>(b));
  return cross_entropy(scores, std::get<1>(b).to(scores.device()));
};
options.epochs = 4;
options.devices = {Device{Backend::cpu, 0}, Device{Backend::interp, 0}};
auto on_two = fit(net, batches(x, labels, {.size = 64}), options);

Net placed = net;
placed.place({Device{Backend::cpu, 0}, Device{Backend::cpu, 0}, Device{Backend::interp, 0}});
Array scores = placed(x);  // on interp:0
options.devices = {};
auto in_parts = fit(placed, batches(x, labels, {.size = 64}), options);

  EXPECT_EQ(scores.device(), (Device{Backend::interp, 0}));
  auto alone = fit(net, batches(x, labels, {.size = 64}), options);
  const float wanted = options.loss(alone.model, {x, labels}).item<float>();
  EXPECT_NEAR(options.loss(on_two.model, {x, labels}).item<float>(), wanted, 1e-4);
  EXPECT_NEAR(options.loss(in_parts.model, {x, labels}).item<float>(), wanted, 1e-4);
}

// clang-format on

}  // namespace
