// SPDX-License-Identifier: Apache-2.0
// How do I draw random numbers?
// Functions of a seed return the same numbers on every device. A Generator continues after its last draw.
#include <tessera/array/functions.h>
#include <tessera/array/generator.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

int main() {
  const Array a = random_normal({100'000}, /*seed=*/1, /*mean=*/5, /*deviation=*/2);
  std::printf("mean %.2f, deviation %.2f\n", static_cast<double>(mean(a).item<float>()),
              static_cast<double>(stddev(a).item<float>()));

  const Array here = random_uniform({1000}, 7), there = random_uniform({1000}, 7, 0, 1, Device{Backend::interp, 0});
  const bool same = here.to_vector<float>() == there.to_vector<float>();
  std::printf("the same numbers on %s and %s: %s\n", to_string(here.device()).c_str(),
              to_string(there.device()).c_str(), same ? "yes" : "no");

  Generator generator(7);
  const Array first = generator.uniform({3}), second = generator.uniform({3});
  std::printf("%s\n%s\n", to_string(first).c_str(), to_string(second).c_str());
  Generator again(generator.seed(), 0);  // seed and offset are the complete state
  const bool repeats = again.uniform({3}).to_vector<float>() == first.to_vector<float>();

  // A random permutation, for shuffling or for sampling without replacement.
  const Array order = argsort(generator.bits({10}));
  std::printf("%s\n", to_string(order).c_str());
  const bool permutation = sum(order).item<std::int64_t>() == 45 && unique(order).size() == 10;
  return same && repeats && permutation && std::abs(mean(a).item<float>() - 5) < 0.05f ? 0 : 1;
}

// Output:
// mean 4.99, deviation 2.00
// the same numbers on ... and interp:0: yes
// array([0.954597, 0.750152, 0.114177], f32, ...)
// array([ 0.40696, 0.795284, 0.171799], f32, ...)
// array([0, 1, 7, 6, 5, 8, 4, 2, 3, 9], i64, ...)
