// SPDX-License-Identifier: Apache-2.0
// A step for which the device has too little memory: nothing is lost, and a smaller batch goes on, or the same one with
// what is passed on computed again in the walk back (gradient checkpointing).
#include <tessera/tessera.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

/// Layers of which the walk back needs what they pass on, and what is in them; `again` has only the first kept.
struct Deep {
  std::vector<Dense> layers;
  bool again = false;
  Array operator()(const Array& x) const {
    const auto block = [](const Dense& layer, const Array& h) {
      const Array y = tanh(layer(h)).eval();
      return (y * sigmoid(y).eval() + exp(y * -1.0).eval()).eval();
    };
    Array y = x;
    for (const Dense& layer : layers) y = again ? recompute(block)(layer, y) : block(layer, y);
    return y;
  }
};
Deep deep(bool again) {
  Deep model{.layers = {}, .again = again};
  for (int i = 0; i < 6; ++i) model.layers.push_back(Dense{.inputs = 64, .outputs = 64});
  return setup(model, {.seed = 4});
}
float step(const Deep& model, const Array& batch) {
  const auto [loss, gradient] = value_and_grad([&](const Deep& m) { return mean(m(batch)); })(model);
  return loss.item<float>();
}

int main() {
  const Device device = current_device();
  const Array batch = random_uniform({2048, 64}, 5, -1, 1).eval();
  const Deep keeps = deep(false), again = deep(true);
  const auto takes = [&](const Deep& model) {
    trim(device), reset_peak_memory(device);
    const std::uint64_t before = memory_stats(device).live_bytes;
    step(model, batch);
    return memory_stats(device).peak_bytes - before;
  };
  const std::uint64_t all = takes(keeps), less = takes(again);
  std::printf("a step with 2048 samples takes %.1f MB, with checkpointing %.1f MB\n", static_cast<double>(all) / 1e6,
              static_cast<double>(less) / 1e6);

  trim(device);
  set_memory_limit(device, memory_stats(device).live_bytes + (all + less) / 2);  // a device with less than it takes
  std::int64_t size = batch.shape(0);
  float loss = NAN;
  while (size > 0 && std::isnan(loss)) {
    try {
      loss = step(keeps, batch.slice(0, 0, size));
    } catch (const OutOfMemory& e) {
      std::printf("%s\n", e.what());
      size /= 2;
    }
  }
  std::printf("with %lld samples it goes on: loss %.4f\n", static_cast<long long>(size), static_cast<double>(loss));
  const float checkpointed = step(again, batch);
  std::printf("with checkpointing it goes on with all 2048: loss %.4f\n", static_cast<double>(checkpointed));
  set_memory_limit(device, 0);
  const bool same = step(keeps, batch) == checkpointed;  // with the memory for it: the same numbers
  return less < all && size > 0 && size < 2048 && std::isfinite(loss) && same ? 0 : 1;
}
