// SPDX-License-Identifier: Apache-2.0
// How do I test my own kernel?
// tessera::testing runs a test on every device and on the interpreter. It uses random data, critical sizes, and outputs
// that contain poison until they are written. Failures are exceptions, so this works with any test framework.
#include <tessera/tessera.h>
#include <tessera/testing/testing.h>

#include <cmath>
#include <iostream>

using namespace tessera;

const auto scaled_sigmoid = kernel("scaled_sigmoid", [](Buffer<const float> x, Buffer<float> y, Val<float> scale) {
  auto i = global_id();
  y[i] = scale / (1 + exp(-x[i]));
});

// The same kernel with a bug: it skips the last element.
const auto skips_one = kernel("skips_one", [](Buffer<const float> x, Buffer<float> y, Val<float> scale) {
  auto i = global_id();
  if_(i + 1 < x.size(), [&] { y[i] = scale / (1 + exp(-x[i])); });
});

template <class Kernel>
void test(const Kernel& kernel) {
  testing::for_each_device([&](Device device) {
    testing::Random random;
    for (std::size_t n : testing::awkward_sizes) {
      const std::vector<float> x = random.values<float>(n, -20, 20);
      testing::Poisoned<float> y(n, device);
      kernel.launch({n}, DeviceBuffer<float>(x, device), y, 3.0f);

      std::vector<double> expected;
      for (float v : x) expected.push_back(3 / (1 + std::exp(-static_cast<double>(v))));
      y.expect(expected, {.absolute = 1e-30, .relative = 1e-6});
    }
  });
}

int main() {
  try {
    test(scaled_sigmoid);
    const std::size_t devices = testing::all_devices().size();
    std::cout << "scaled_sigmoid passes on " << devices << (devices == 1 ? " device\n" : " devices\n");
  } catch (const testing::Failure& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  try {
    test(skips_one);
  } catch (const testing::Failure& e) {
    std::cout << "skips_one fails, as it should:\n" << e.what() << "\n";
    return 0;
  }
  std::cerr << "the bug was not found\n";
  return 1;
}

// Output:
// scaled_sigmoid passes on ... devices
// skips_one fails, as it should:
// ...
//   cpu:0 ...got poison..., expected ...
// ...
