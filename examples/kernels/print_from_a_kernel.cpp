// SPDX-License-Identifier: Apache-2.0
// How do I print from a kernel?
// print() writes a line to standard output for each thread that executes it (not on Metal).
#include <tessera/kernel/buffer.h>
#include <tessera/kernel/kernel.h>

#include <cstdio>

using namespace tessera;

int main() {
  const auto find_negative = kernel("find_negative", [](Buffer<const float> x, Buffer<int> count) {
    auto i = global_id();
    if_(x[i] < 0, [&] {
      print("x[{}] is {:.4}", i, x[i]);  // 4 significant digits
      atomic_add(count, 0, 1);
    });
  });
  std::vector<float> numbers(100, 1.0f);
  numbers[17] = -0.333333f;
  const DeviceBuffer<float> x(numbers);
  DeviceBuffer<int> count(std::vector<int>{0});
  find_negative.launch({numbers.size()}, x, count);
  return count.to_vector()[0] == 1 ? 0 : 1;
}

// Output:
// x[17] is -0.3333
