// SPDX-License-Identifier: Apache-2.0
// How do I write and launch a kernel?
// This program has a kernel, three buffers and one launch, on the current device (see `tessera devices`).
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main() {
  // The function is traced once, here. The launch determines the number of threads: one per element.
  const auto add = kernel("add", [](Buffer<const float> a, Buffer<const float> b, Buffer<float> c) {
    auto i = global_id();
    c[i] = a[i] + b[i];
  });

  std::vector<float> x(1'000'003), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i), y[i] = 0.5f;

  const DeviceBuffer<float> a(x), b(y);
  DeviceBuffer<float> c(x.size());
  add.launch({x.size()}, a, b, c);

  const std::vector<float> z = c.to_vector();  // waits for the device
  for (std::size_t i = 0; i < z.size(); ++i) {
    if (z[i] != x[i] + 0.5f) {
      std::cerr << "element " << i << " is " << z[i] << "\n";
      return 1;
    }
  }
  std::cout << z.size() << " sums are right, on " << why_current_device() << "\n";
}

// Output:
// 1000003 sums are right, on ...
