// SPDX-License-Identifier: Apache-2.0
// How do I use atomics?
// In this histogram, each block counts in shared memory and then adds its counts to the result.
#include <tessera/array/array.h>
#include <tessera/kernel/kernel.h>

#include <algorithm>
#include <cstdio>

using namespace tessera;

constexpr int bins = 10;

const auto count_bins = kernel("histogram", block(128), [](Buffer<const float> x, Buffer<int> counts) {
  Shared<int> mine(bins);
  auto t = thread_id();
  if_(t < bins, [&] { mine[t] = 0; });
  barrier();
  for_(global_id(), x.size(), grid_size(), [&](Val<Index> i) {
    auto bin = cast<Index>(x[i] * bins);  // rounds towards zero
    atomic_add(mine, min(max(bin, 0), bins - 1), 1);
  });
  barrier();
  if_(t < bins, [&] { atomic_add(counts, t, mine[t]); });
});

int main() {
  const Array x = random_uniform({100'000}, /*seed=*/1);
  Array counts = Array::zeros({bins}, DType::i32);
  count_bins.launch(blocks(32), x, counts);

  const auto host_x = x.to_vector<float>();
  std::vector<int> expected(bins);
  for (const float v : host_x) ++expected[std::min(static_cast<int>(v * bins), bins - 1)];
  const auto result = counts.to_vector<int>();
  for (int i = 0; i < bins; ++i) std::printf("%.1f to %.1f: %d\n", i / 10.0, (i + 1) / 10.0, result[i]);
  return result == expected ? 0 : 1;
}

// Output:
// 0.0 to 0.1: 9922
// 0.1 to 0.2: 9796
// 0.2 to 0.3: 9996
// 0.3 to 0.4: 10024
// 0.4 to 0.5: 10268
// 0.5 to 0.6: 9990
// 0.6 to 0.7: 10049
// 0.7 to 0.8: 9969
// 0.8 to 0.9: 10031
// 0.9 to 1.0: 9955
