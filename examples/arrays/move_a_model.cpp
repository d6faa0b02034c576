// SPDX-License-Identifier: Apache-2.0
// How do I move a model and its batches to another device?
// `model | device` copies any nested structure of arrays and preserves shared memory. prefetch() overlaps copies and
// compute.
#include <tessera/tessera.h>

#include <cmath>
#include <iostream>
#include <map>
#include <vector>

using namespace tessera;

struct Layer {
  Array weight, bias;
};
struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Array> extra;
  Generator random{7};
  float scale = 0.5f;
};

Array forward(const Model& m, Array x) {
  for (const Layer& l : m.layers) x = relu(matmul(x, l.weight) + l.bias);
  return x * m.scale;
}

int main() {
  const Device host{Backend::cpu, 0}, device = gpu_device();  // without a GPU this is the CPU, and a warning is printed
  const Device other = device == host ? Device{Backend::interp, 0} : device;

  const Array embedding = random_uniform({16, 8}, 1, -1, 1, host);
  Model model{.layers = {{random_uniform({8, 16}, 2, -1, 1, host), Array::zeros({16}, DType::f32, host)}},
              .extra = {{"embedding", embedding}, {"head", embedding.transpose()}}};  // tied weights

  const Model there = model | other;
  std::cout << "the model is on " << to_string(*device_of(there)) << ", the original on "
            << to_string(*device_of(model)) << "\n";
  there.extra.at("embedding").select(0, 0).fill(2);  // visible in the other view too
  const bool tied = there.extra.at("head").select(1, 0).to_vector<float>() == std::vector<float>(8, 2);

  std::vector<Array> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(model.random.uniform({3, 8}, -1, 1, host));
  bool same = true;
  std::size_t n = 0;
  for (auto batch : prefetch(batches, other)) {
    const auto got = forward(there, batch).to_vector<float>(), want = forward(model, batches[n++]).to_vector<float>();
    for (std::size_t i = 0; i < got.size(); ++i) same = same && std::abs(got[i] - want[i]) < 1e-4f;
  }

  bool refused = false;
  try {
    device_of(std::pair(model, there), "both");
  } catch (const DeviceError& e) {
    std::cout << e.what() << "\n";
    refused = true;
  }
  return tied && same && refused && n == 4 ? 0 : 1;
}

// Output:
// the model is on ..., the original on cpu:0
// [device_of] ...both.0.layers.0.weight: cpu:0...
