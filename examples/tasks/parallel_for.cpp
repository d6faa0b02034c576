// SPDX-License-Identifier: Apache-2.0
// How do I run a loop in parallel?
// parallel_for() calls a function for each index or for each chunk of indices. reduce() combines partial results.
#include <tessera/array/array.h>
#include <tessera/task/region.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

int main() {
  std::vector<double> roots(100'000);
  const Array numbers = Array::ones({1000});
  Array total = Array::zeros({1});

  Region region;
  region.parallel_for(roots.size(), [&](std::size_t i) { roots[i] = std::sqrt(static_cast<double>(i)); });
  // Uses chunks of 100. Each chunk adds to a partial sum, and the partial sums are combined in a fixed order.
  region.parallel_for(
      {0, 1000, 100}, [](int begin, int end, const Array& x, Array& part) { part += sum(x.slice(0, begin, end)); },
      in(numbers), reduce(Combine::sum, total));
  region.wait();
  std::printf("root of 81: %.0f, total: %.0f\n", roots[81], static_cast<double>(total.item<float>()));
  return roots[81] == 9 && total.item<float>() == 1000 ? 0 : 1;
}

// Output:
// root of 81: 9, total: 1000
