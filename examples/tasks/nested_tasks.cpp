// SPDX-License-Identifier: Apache-2.0
// How do I parallelise a recursive algorithm?
// Tasks may spawn tasks and wait for them. A waiting thread runs other tasks. This example is a merge sort.
#include <tessera/task/task.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

using namespace tessera;

void merge_sort(std::span<std::uint32_t> x) {
  if (x.size() < 10'000) {
    std::ranges::sort(x);
    return;
  }
  const std::size_t half = x.size() / 2;
  const Task<void> left = spawn([x, half] { merge_sort(x.first(half)); });
  merge_sort(x.subspan(half));
  left.wait();
  std::inplace_merge(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(half), x.end());
}

int main() {
  std::vector<std::uint32_t> numbers(200'000);
  std::uint32_t state = 1;
  for (std::uint32_t& n : numbers) n = state = state * 1664525 + 1013904223;
  std::vector<std::uint32_t> expected = numbers;
  std::ranges::sort(expected);

  spawn([&] { merge_sort(numbers); }).wait();
  std::printf("%zu numbers are sorted: %s\n", numbers.size(), numbers == expected ? "yes" : "no");
  return numbers == expected ? 0 : 1;
}

// Output:
// 200000 numbers are sorted: yes
