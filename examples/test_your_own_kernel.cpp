// SPDX-License-Identifier: Apache-2.0
// A test of one's own kernel: one body on every device of the machine and on the interpreter, with random data, sizes
// at which kernels break, and outputs that hold poison until they are written. Failures are thrown, for any test
// framework.
#include <tessera/tessera.h>
#include <tessera/testing/testing.h>

#include <cmath>
#include <iostream>

using namespace tessera;

const auto scaled_sigmoid = kernel("scaled_sigmoid", [](Buffer<const float> x, Buffer<float> y, Val<float> scale) {
  auto i = global_id();
  y[i] = scale / (1 + exp(-x[i]));
});

// The same with a mistake: the last element is forgotten.
const auto forgets_one = kernel("forgets_one", [](Buffer<const float> x, Buffer<float> y, Val<float> scale) {
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
    std::cout << "scaled_sigmoid is right on " << devices << (devices == 1 ? " device\n" : " devices\n");
  } catch (const testing::Failure& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  try {
    test(forgets_one);
  } catch (const testing::Failure& e) {
    std::cout << "forgets_one is wrong, as it should be:\n" << e.what() << "\n";
    return 0;
  }
  std::cerr << "the mistake was not found\n";
  return 1;
}
