// SPDX-License-Identifier: Apache-2.0
// Saving and loading nested structures of arrays. Loading writes into the existing memory, and writes either all arrays
// or none.
#include "tessera/array/saved_arrays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tessera/array/move.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

struct Linear {
  Array weight, bias;
};
struct Model {
  std::vector<Linear> layers;
  std::map<std::string, Array> named;
  std::shared_ptr<Array> shared, again;
  int steps = 0;
};
Model model(float first) {
  const auto range = [&](Shape shape) { return Array::arange(element_count(shape), first).reshape(shape); };
  const auto shared = std::make_shared<Array>(range({2}));
  return {.layers = {{range({3, 2}), range({3})}, {range({1, 3}), range({1})}},
          .named = {{"plain", range({2})}, {"a.b", range({0, 4})}},
          .shared = shared,
          .again = shared};
}
using Contents = std::map<std::string, std::vector<float>>;
Contents contents(const Model& m) {
  Contents all;
  for_each_array(m, [&](const Array& a, const Path& at) { all[at.text()] = a.astype(DType::f32).to_vector<float>(); });
  return all;
}
std::vector<std::string> sorted(std::vector<std::string> names) {
  std::ranges::sort(names);
  return names;
}

TEST_P(OnEveryDevice, LoadArraysWritesIntoExistingMemory) {
  const test::Folder folder;
  const std::string path = folder / "new" / "model.safetensors";
  const Model saved = model(5);
  save_arrays(saved, path, {{"step", "3"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata().at("step"), "3");
  ASSERT_EQ(file.tensors().size(), 7u);  // a shared object is saved only once
  EXPECT_EQ(file.tensors()[0].name, "layers.0.weight");
  EXPECT_NE(file.find("named[\"a.b\"]"), nullptr);

  Model loaded = model(0);
  loaded.steps = 4;
  const Array copy = loaded.layers[0].weight, view = loaded.layers[0].weight.transpose(), reader = copy + 1;
  // Several arrays share a storage, and one of them has gaps between its elements. Another array is a bool.
  const Array packed = Array::zeros({8});
  loaded.layers[1].weight = packed.slice(0, 0, 3).reshape({1, 3});
  loaded.layers[0].bias = packed.slice(0, 3, 8, 2);
  const LoadReport report = load_arrays(loaded, path);
  EXPECT_EQ(contents(loaded), contents(saved));
  EXPECT_EQ(loaded.steps, 4);
  EXPECT_EQ(loaded.shared, loaded.again);
  EXPECT_EQ(copy.to_vector<float>(), saved.layers[0].weight.to_vector<float>());
  EXPECT_EQ(view.to_vector<float>(), saved.layers[0].weight.transpose().to_vector<float>());
  EXPECT_EQ(reader.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));  // computed before the write
  EXPECT_EQ(packed.to_vector<float>(), (std::vector<float>{5, 6, 7, 5, 0, 6, 0, 7}));
  EXPECT_EQ(loaded.layers[0].weight.device(), GetParam());
  EXPECT_EQ(report.loaded.size(), 7u);
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty() && report.mismatched.empty());

  // Arrays on another device remain there.
  Model on_host = to(model(0), Device{});
  load_arrays(on_host, file);
  EXPECT_EQ(contents(on_host), contents(saved));
  EXPECT_EQ(on_host.layers[0].weight.device(), Device{});

  Array flag = Array::from({true, false});
  save_arrays(flag, path);
  flag.fill(0);
  load_arrays(flag, path);
  EXPECT_EQ(flag.to_vector<bool>(), (std::vector<bool>{true, false}));
}

TEST_P(OnEveryDevice, LoadArraysListsAllMismatchesAndWritesNothing) {
  const test::Folder folder;
  const std::string path = folder / "model.safetensors";
  Model saved = model(5);
  saved.layers.push_back({Array::ones({1}), Array::ones({1})});
  saved.layers[0].bias = saved.layers[0].bias.astype(DType::i32);
  saved.layers[1].weight = saved.layers[1].weight.transpose();
  saved.named.erase("plain");
  save_arrays(saved, path);

  Model loaded = model(0);
  const Contents before = contents(loaded);
  expect_throw<ArgumentError>(
      [&] { load_arrays(loaded, path); },
      {path,
       "missing: named.plain; unexpected: layers.2.weight, layers.2.bias; layers.0.bias is (3,) I32 in the file and ",
       "(3,) F32 here, layers.1.weight is (3, 1) F32 in the file and (1, 3) F32 here", ".partial"});
  EXPECT_EQ(contents(loaded), before);

  const LoadReport report = load_arrays(loaded, path, {.partial = true});
  EXPECT_EQ(report.missing, std::vector<std::string>{"named.plain"});
  EXPECT_EQ(sorted(report.unexpected), (std::vector<std::string>{"layers.2.bias", "layers.2.weight"}));
  ASSERT_EQ(report.mismatched.size(), 2u);
  EXPECT_TRUE(report.mismatched[0].starts_with("layers.0.bias is "));
  EXPECT_EQ(sorted(report.loaded),
            (std::vector<std::string>{"layers.0.weight", "layers.1.bias", "named[\"a.b\"]", "shared"}));
  Contents want = before;
  for (const std::string& name : report.loaded) want[name] = contents(saved)[name];
  EXPECT_EQ(contents(loaded), want);

  // Arrays that cannot be written are detected before the first write, even in a partial load.
  std::vector<Array> pair = {Array::zeros({2}), Array::zeros({1}).broadcast_to({2})};
  save_arrays(std::vector<Array>{Array::ones({2}), Array::ones({2})}, path);
  expect_throw<ArgumentError>([&] { load_arrays(pair, path); }, {"1 is a broadcast array here"});
  EXPECT_EQ(pair[0].to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_EQ(load_arrays(pair, path, {.partial = true}).loaded, std::vector<std::string>{"0"});
  EXPECT_EQ(pair[0].to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST_P(OnEveryDevice, LoadingATruncatedFileWritesNothing) {
  const test::Folder folder;
  const std::string path = folder / "model.safetensors";
  save_arrays(model(5), path);
  const std::string whole = test::text_of(path);
  Model loaded = model(0);
  const Contents before = contents(loaded);
  for (const std::size_t n : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, n);
    EXPECT_THROW(load_arrays(loaded, path), FormatError) << n;
    EXPECT_THROW(load_arrays(loaded, path, {.partial = true}), FormatError) << n;
  }
  // The file is truncated after its header has been read, so the last tensor is incomplete.
  std::ofstream(path, std::ios::binary) << whole;
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, whole.size() - 1);
  EXPECT_THROW(load_arrays(loaded, file), FormatError);
  EXPECT_EQ(contents(loaded), before);
  EXPECT_THROW(load_arrays(loaded, folder / "none"), ArgumentError);
}

}  // namespace
}  // namespace tessera
