// SPDX-License-Identifier: Apache-2.0
// How do I build a task graph?
// Pass the result of a task to another task, which then runs after the first one. Independent tasks run in parallel.
#include <tessera/array/functions.h>
#include <tessera/task/task.h>

#include <cmath>
#include <cstdio>

using namespace tessera;

int main() {
  const Task<Array> data = spawn([] { return random_normal({1000}, 1); });
  const Task<float> average = spawn([](const Array& x) { return mean(x).item<float>(); }, data);
  const Task<float> largest = spawn([](const Array& x) { return max(x).item<float>(); }, data);
  const Task<Array> scaled =
      spawn([](const Array& x, float mean, float max) { return (x - mean) / (max - mean); }, data, average, largest);
  const Task<float> result = scaled.then([](const Array& x) { return max(x).item<float>(); });
  std::printf("largest scaled value: %.3f\n", static_cast<double>(result.fetch()));

  // Many tasks, and one task that uses all of their results.
  std::vector<Task<int>> squares;
  for (int i = 0; i < 10; ++i) squares.push_back(spawn([i] { return i * i; }));
  const Task<int> sum_of_squares = spawn(
      [](const std::vector<int>& all) {
        int sum = 0;
        for (const int n : all) sum += n;
        return sum;
      },
      squares);
  std::printf("sum of squares: %d\n", sum_of_squares.fetch());
  return std::abs(result.fetch() - 1) < 1e-6f && sum_of_squares.fetch() == 285 ? 0 : 1;
}

// Output:
// largest scaled value: 1.000
// sum of squares: 285
