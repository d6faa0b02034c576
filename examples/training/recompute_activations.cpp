// SPDX-License-Identifier: Apache-2.0
// How do I train with less memory (gradient checkpointing)?
// recompute(f) stores no intermediate results of f. The backward pass runs f again and computes identical gradients.
#include <tessera/grad/custom.h>
#include <tessera/grad/grad.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/setup.h>

#include <cstdio>

using namespace tessera;

struct Deep {
  std::vector<Dense> layers;
  bool recomputes = false;
  Array operator()(const Array& x) const {
    const auto block = [](const Dense& layer, const Array& h) {
      const Array y = tanh(layer(h)).eval();
      return (y * sigmoid(y).eval() + exp(y * -1.0).eval()).eval();
    };
    Array y = x;
    for (const Dense& layer : layers) y = recomputes ? recompute(block)(layer, y) : block(layer, y);
    return y;
  }
};

int main() {
  const Device device = current_device();
  Deep model{.layers = std::vector<Dense>(6, Dense{.inputs = 64, .outputs = 64})};
  model = setup(model, {.seed = 4});
  const Array batch = random_uniform({2048, 64}, 5, -1, 1).eval();

  std::vector<float> gradients[2];
  double megabytes[2];
  for (const bool recomputes : {false, true}) {
    model.recomputes = recomputes;
    trim(device), reset_peak_memory(device);
    const std::uint64_t before = memory_stats(device).live_bytes;
    const auto gradient = grad([&](const Deep& m) { return mean(m(batch)); })(model);
    gradients[recomputes] = gradient.layers[0].weight.to_vector<float>();
    megabytes[recomputes] = static_cast<double>(memory_stats(device).peak_bytes - before) / 1e6;
  }
  std::printf("memory of a step: %.1f MB, recomputed %.1f MB\n", megabytes[0], megabytes[1]);
  return megabytes[1] < 0.6 * megabytes[0] && gradients[0] == gradients[1] ? 0 : 1;
}

// Output:
// memory of a step: ... MB, recomputed ... MB
