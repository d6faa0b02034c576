// SPDX-License-Identifier: Apache-2.0
// How do I reduce an array to one number in a kernel?
// Each thread adds some elements, block_sum() adds over the threads of a block, and a second launch adds over the
// blocks.
#include <tessera/kernel/buffer.h>
#include <tessera/kernel/kernel.h>

#include <cmath>
#include <iostream>

using namespace tessera;

int main() {
  const auto partial_sums = kernel("partial_sums", block(256), [](Buffer<const float> x, Buffer<float> sums) {
    Var<float> mine = 0.0f;
    for_(global_id(), x.size(), grid_size(), [&](Val<Index> i) { mine += x[i]; });
    auto total = block_sum(mine);  // every thread gets the sum; no barriers or shared memory are needed
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
  partial_sums.launch(blocks(1), sums, result);  // launches in the same queue run in order

  const float sum = result.to_vector()[0];
  std::cout << std::fixed << "sum " << sum << ", expected " << expected << "\n";
  return std::abs(sum - expected) <= 1e-5 * expected ? 0 : 1;
}

// Output:
// sum 1000000..., expected 1000000.882878
