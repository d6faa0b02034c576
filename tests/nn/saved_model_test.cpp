// SPDX-License-Identifier: Apache-2.0
// Models in files: saving and loading on different devices, manifests, and files from PyTorch. killed_saver_test.cpp
// tests programs that are killed while saving.
#include "tessera/nn/saved_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "tessera/base/test_seed.h"
#include "tessera/nn/images.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/sequential.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

auto network(std::uint64_t seed = 1) {
  return setup(sequential(dense<6, 12>, BatchNorm{}, relu, dense<12, 3>), {.seed = seed, .input = {6}});
}
template <class M>
std::vector<std::vector<float>> values(const M& model) {
  std::vector<std::vector<float>> out;
  for_each_array(model, [&](const Array& a) { out.push_back(a.astype(DType::f32).to_vector<float>()); });
  return out;
}
void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST_P(OnEveryDevice, LoadsOnAnyDevice) {
  const test::Folder folder;
  const auto model = network();
  save_model(model, folder / "a.safetensors", {{"task", "test"}});
  for (const Device other : testing::all_devices()) {
    const DeviceScope scope(other);
    auto loaded = network(2);
    ASSERT_NE(values(loaded), values(model));
    const LoadReport report = load_model(loaded, folder / "a.safetensors");
    EXPECT_EQ(report.loaded.size(), 8u);
    EXPECT_EQ(values(loaded), values(model)) << to_string(other);
    EXPECT_EQ(loaded.get<0>().weight.device(), other);
    save_model(loaded, folder / "b.safetensors", {{"task", "test"}});
    EXPECT_EQ(test::text_of(folder / "b.safetensors") == test::text_of(folder / "a.safetensors"), true)
        << "the same bytes from " << to_string(other);
  }
}

TEST_P(OnEveryDevice, Converts16BitCheckpointsOnRequest) {
  const test::Folder folder;
  const auto wide = setup(sequential(dense<6, 8>, relu, dense<8, 3>), {.seed = 1});
  for (const DType narrow : {DType::f16, DType::bf16}) {
    const std::string path = folder / std::string(dtype_name(narrow));
    std::vector<std::pair<std::string, Array>> all;
    for (const NamedArray& p : parameters(wide)) all.emplace_back(p.path, p.array.astype(narrow));
    save_safetensors(path, all);
    auto model = setup(sequential(dense<6, 8>, relu, dense<8, 3>), {.seed = 2});
    const auto before = values(model);
    expect_throw<ArgumentError>([&] { load_model(model, path); },
                                {"0.weight is (8, 6)", "F32 here", ".convert = true"});
    EXPECT_EQ(values(model), before);
    const LoadReport report = load_model(model, path, {.convert = true});
    EXPECT_EQ(report.loaded.size(), 4u);
    EXPECT_EQ(report.converted.size(), 4u);
    std::size_t i = 0;
    for (const NamedArray& p : parameters(model))
      EXPECT_EQ(p.array.to_vector<float>(), all[i++].second.astype(DType::f32).to_vector<float>()) << p.path;
    // Loads f32 arrays into a 16-bit model, which rounds them.
    auto half = setup(sequential(dense<6, 8>, relu, dense<8, 3>), {.seed = 2, .dtype = narrow});
    save_model(wide, path);
    load_model(half, path, {.convert = true});
    EXPECT_EQ(values(half), values(model));
    // Arrays with different shapes, and integers, are not converted.
    auto other = setup(sequential(dense<6, 7>, relu, dense<7, 3>), {.seed = 2});
    expect_throw<ArgumentError>([&] { load_model(other, path, {.convert = true}); }, {"0.weight is (8, 6)"});
  }
}

TEST(SavedModel, ContainsAManifest) {
  const test::Folder folder;
  const auto model = network();
  const std::string path = folder / "a.safetensors";
  save_model(model, path, {{"task", "test"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata().at("task"), "test");
  const auto manifest = manifest_of(file);
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->format, 1);
  EXPECT_FALSE(manifest->library.empty());
  ASSERT_EQ(manifest->arrays.size(), 8u);
  EXPECT_EQ(manifest->arrays.at("0.weight").dtype, "f32");
  EXPECT_EQ(manifest->arrays.at("0.weight").shape, (Shape{12, 6}));
  EXPECT_EQ(manifest->arrays.at("1.running_mean").sha256,
            "17b0761f87b081d5cf10757ccc89f12be355c70e2e29df288b65b30710dcbcd1")
      << "sha256sum of 48 zero bytes";
  expect_throw<ArgumentError>([&] { save_model(model, path, {{"tessera.manifest", "mine"}}); }, {"tessera.manifest"});
}

TEST(SavedModel, RejectsChangedFiles) {
  const test::Folder folder;
  const std::string path = folder / "a.safetensors";
  save_model(network(), path);
  const std::string whole = test::text_of(path);
  auto model = network(2);
  const auto before = values(model);
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 30; ++i) {  // changes a random byte of the elements
    std::string damaged = whole;
    const std::size_t data = 8 + *reinterpret_cast<const std::uint64_t*>(whole.data());
    damaged[data + random() % (whole.size() - data)] ^= static_cast<char>(1 + random() % 255);
    write_file(path, damaged);
    expect_throw<FormatError>([&] { load_model(model, path); }, {"has different elements", "changed or damaged"});
    EXPECT_EQ(values(model), before);
  }
  EXPECT_NO_THROW(load_model(model, path, {.check_hashes = false}));
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
    write_file(path, text);
  };
  edited("\\\"format\\\":1", "\\\"format\\\":7");
  expect_throw<FormatError>([&] { load_model(model, path); }, {"format is 7", "supports formats up to 1"});
  edited("\\\"format\\\":1", "\\\"formal\\\":1");
  expect_throw<FormatError>([&] { load_model(model, path); }, {"not written by save_model"});
  edited("\"3.bias\":{", "\"3.bios\":{");
  expect_throw<FormatError>([&] { load_model(model, path); }, {"3.bios is missing from the file", "3.bias is missing"});
}

/// Compares the model's result with PyTorch's. The file contains the input and PyTorch's result in addition to the
/// network's arrays.
void expect_as_pytorch(const std::string& path, const auto& model) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto got = model(file.load("test.x")).template to_vector<float>();
  const auto want = file.load("test.y").to_vector<float>();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

struct Named {
  Dense fc1{.inputs = 6, .outputs = 8};
  LayerNorm norm{.shape = {8}};
  Dense fc2{.inputs = 8, .outputs = 3};
  Array operator()(const Array& x) const { return fc2(relu(norm(fc1(x)))); }
};

TEST_P(OnEveryDevice, ModelsFromPyTorchFilesMatchPyTorch) {
  NameMap names = names_of_pytorch();
  names.emplace_back("test.*", "");
  auto images = setup(Sequential{Conv2d{.out = 4, .kernel = 3, .padding = 1}, BatchNorm{}, Relu{}, MaxPool2d{},
                                 Flatten{}, Dense{.outputs = 5}},
                      {.seed = 1, .input = {2, 6, 6}});
  const std::string path = TESSERA_TEST_DATA "/pytorch_images.safetensors";
  EXPECT_EQ(load_model(images, path, {.names = names}).loaded.size(), 8u);
  expect_as_pytorch(path, images);
  auto named = setup(Named{}, {.seed = 1});
  const std::string other = TESSERA_TEST_DATA "/pytorch_named.safetensors";
  load_model(named, other, {.names = names});
  expect_as_pytorch(other, named);
  // Loads the file into a model with different names.
  auto renamed = setup(sequential(dense<6, 8>, LayerNorm{}, relu, dense<8, 3>), {.seed = 1, .input = {6}});
  load_model(renamed, other, {.names = {{"fc1.*", "0.*"}, {"norm.*", "1.*"}, {"fc2.*", "3.*"}, {"test.*", ""}}});
  expect_as_pytorch(other, renamed);
  // All arrays that do not match are listed, and nothing is loaded.
  const auto before = values(renamed);
  expect_throw<ArgumentError>(
      [&] {
        load_model(renamed, other, {.names = {{"test.*", ""}, {"fc1.*", "0.*"}}});
      },
      {"missing: 1.weight", "unexpected: ", "fc2.weight"});
  expect_throw<ArgumentError>(
      [&] {
        load_model(renamed, other, {.names = {{"fc*.bias", "0.bias"}}});
      },
      {"two arrays", "0.bias", "fc1.bias"});
  EXPECT_EQ(values(renamed), before);
}

}  // namespace
}  // namespace tessera
