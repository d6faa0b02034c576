// SPDX-License-Identifier: Apache-2.0
// How do I save and load arrays?
// Use safetensors for structures of named arrays, and .npy for a single array. Other libraries can read and write both.
#include <tessera/array/saved_arrays.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>

using namespace tessera;

struct Layer {
  Array weight, bias;
};

int main() {
  const auto folder = std::filesystem::temp_directory_path() / ("tessera-save-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string file = folder / "model.safetensors", npy = folder / "x.npy";

  const std::vector<Layer> model{{random_normal({4, 8}, 1), Array::zeros({8})}};
  save_arrays(model, file, {{"step", "1200"}});

  // Loads one array by name, without reading the others.
  const SafetensorsFile opened = SafetensorsFile::open(file);
  for (const SafetensorsTensor& t : opened.tensors())
    std::printf("%s %s %s\n", t.name.c_str(), t.dtype_name.c_str(), to_string(t.shape).c_str());
  std::printf("step %s\n", opened.metadata().at("step").c_str());
  const Array weight = opened.load("0.weight");

  // Loads into an existing structure. If this fails, the structure is not changed.
  std::vector<Layer> loaded{{Array::zeros({4, 8}), Array::zeros({8})}};
  load_arrays(loaded, file);

  save_npy(weight, npy);
  const Array again = load_npy(npy);
  std::filesystem::remove_all(folder);
  const auto expected = model[0].weight.to_vector<float>();
  return loaded[0].weight.to_vector<float>() == expected && again.to_vector<float>() == expected ? 0 : 1;
}

// Output:
// 0.weight F32 (4, 8)
// 0.bias F32 (8,)
// step 1200
