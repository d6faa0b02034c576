// SPDX-License-Identifier: Apache-2.0
// A program that runs one kernel. tests/cache/warm_start_test.cpp measures how long this takes.
#include <unistd.h>

#include "tessera/tessera.h"

int main() {
  const auto add = tessera::kernel("add", [](tessera::Buffer<const float> x, tessera::Buffer<float> y) {
    y[tessera::global_id()] = x[tessera::global_id()] + 1.0f;
  });
  const tessera::DeviceBuffer<float> x(std::vector<float>(1000, 1.0f));
  tessera::DeviceBuffer<float> y(1000);
  add.launch({1000}, x, y);
  ::_exit(y.to_vector()[999] == 2.0f ? 0 : 1);  // skips exit handlers, which should not be measured
}
