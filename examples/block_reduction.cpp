// SPDX-License-Identifier: Apache-2.0
// A sum over many numbers: each thread adds some, block_sum adds the threads of a block, a second launch adds the
// blocks.
#include <tessera/tessera.h>

#include <cmath>
#include <iostream>

using namespace tessera;

int main() {
  const auto partial_sums = kernel("partial_sums", block(256), [](Buffer<const float> x, Buffer<float> sums) {
    Var<float> mine = 0.0f;
    for_(global_id(), x.size(), grid_size(), [&](Val<Index> i) { mine += x[i]; });
    auto total = block_sum(mine);  // the same number in every thread; no barriers, no shared memory to care for
    if_(thread_id() == 0, [&] { sums[block_id()] = total; });
  });

  std::vector<float> numbers(1'000'001);
  double expected = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = std::sin(static_cast<float>(i)) + 1;
    expected += numbers[i];
  }
  const DeviceBuffer<float> x(numbers);
  DeviceBuffer<float> sums(64), result(1);
  partial_sums.launch(blocks(64), x, sums);
  partial_sums.launch(blocks(1), sums, result);  // the same queue: it comes after the first

  const float sum = result.to_vector()[0];
  std::cout << std::fixed << "sum " << sum << ", expected " << expected << "\n";
  return std::abs(sum - expected) <= 1e-5 * expected ? 0 : 1;
}
