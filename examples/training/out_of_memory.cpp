// SPDX-License-Identifier: Apache-2.0
// How do I continue when a training step runs out of memory?
// OutOfMemory lists the largest allocations. A step that fails changes nothing, so you can retry with a smaller batch.
#include <tessera/grad/grad.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/sequential.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

using Net = Sequential<Dense, Elementwise, Dense, Elementwise, Dense>;

float step(const Net& model, const Array& batch) {
  const auto [loss, gradient] = value_and_grad([&](const Net& m) {
    const Array y = m(batch);
    return mean(y * y);
  })(model);
  return loss.item<float>();
}

int main() {
  const Device device = current_device();
  const Net model = setup(sequential(dense<16, 64>, tanh, dense<64, 64>, tanh, dense<64, 16>), {.seed = 1});
  const Array batch = random_uniform({2048, 16}, 2, -1, 1).eval();

  step(model, batch);
  trim(device), reset_peak_memory(device);
  const std::uint64_t before = memory_stats(device).live_bytes;
  const float expected = step(model, batch);
  const std::uint64_t needed = memory_stats(device).peak_bytes - before;
  std::printf("a step with 2048 samples needs %.1f MB\n", static_cast<double>(needed) / 1e6);

  trim(device);
  set_memory_limit(device, memory_stats(device).live_bytes + needed * 2 / 3);  // less than the step needs
  std::int64_t size = batch.shape(0);
  float loss = NAN;
  while (size > 0 && std::isnan(loss)) {
    try {
      loss = step(model, batch.slice(0, 0, size));
    } catch (const OutOfMemory& e) {
      std::printf("%s\n", e.what());
      size /= 2;
    }
  }
  set_memory_limit(device, 0);
  std::printf("with %lld samples: loss %.3f\n", static_cast<long long>(size), static_cast<double>(loss));
  return size > 0 && size < 2048 && std::abs(loss - expected) < 0.1f ? 0 : 1;
}

// Output:
// a step with 2048 samples needs ... MB
// [allocate] ... does not have enough memory: ...
// ...
// with ... samples: loss ...
