// SPDX-License-Identifier: Apache-2.0
// How do I time a kernel?
// Launches are asynchronous. Run the kernel once to compile it, then time many launches and wait for the queue.
#include <tessera/kernel/buffer.h>
#include <tessera/kernel/kernel.h>

#include <chrono>
#include <cstdio>

using namespace tessera;

int main() {
  const auto triad = kernel("triad", [](Buffer<const float> a, Buffer<const float> b, Buffer<float> c, Val<float> s) {
    auto i = global_id();
    c[i] = a[i] + s * b[i];
  });
  constexpr std::size_t n = 1 << 20;
  const DeviceBuffer<float> a(std::vector<float>(n, 1)), b(std::vector<float>(n, 2));
  DeviceBuffer<float> c(n);
  Queue& queue = Queue::of(current_device());

  triad.launch({n}, a, b, c, 3.0f);
  queue.finish();
  constexpr int launches = 50;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) triad.launch({n}, a, b, c, 3.0f);
  queue.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / launches;
  std::printf("%.1f us per launch, %.1f GB/s\n", seconds * 1e6, 3 * n * sizeof(float) / seconds / 1e9);
  return c.to_vector()[n - 1] == 7 ? 0 : 1;
}

// Output:
// ... us per launch, ... GB/s
