// SPDX-License-Identifier: Apache-2.0
// How do I run the same code on every device?
// Write the code once, run it with each device as the current device, and compare the results.
#include <tessera/array/array.h>
#include <tessera/kernel/kernel.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

const auto gaussian = kernel("gaussian", [](Buffer<const float> x, Buffer<float> y, Val<float> width) {
  auto i = global_id();
  y[i] = exp(-x[i] * x[i] / (2 * width * width));
});

/// Returns the integral of exp(-x^2 / 2), computed by the trapezoidal rule on the current device.
float integral() {
  const std::int64_t n = 10001;
  const Array x = Array::linspace(-10, 10, n);
  Array y = Array::empty({n});
  gaussian.launch({n}, x, y, 1.0f);
  return (sum(y) * (20.0 / (n - 1))).item<float>();
}

int main() {
  const float expected = std::sqrt(2 * 3.14159265f);
  bool right = true;
  for (const Device device : devices()) {  // GPUs, OpenCL devices, the CPU, and the reference interpreter
    const DeviceScope scope(device);
    const float result = integral();
    std::printf("%-9s %.5f\n", to_string(device).c_str(), static_cast<double>(result));
    right = right && std::abs(result - expected) < 1e-4f;
  }
  return right ? 0 : 1;
}

// Output:
// ...
// cpu:0     2.50663
// ...
// interp:0  2.50663
