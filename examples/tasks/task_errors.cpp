// SPDX-License-Identifier: Apache-2.0
// How do I handle errors in tasks?
// An exception in a task is thrown where its result is used. Tasks that depend on it are skipped; other tasks run.
#include <tessera/array/array.h>
#include <tessera/task/region.h>

#include <cstdio>
#include <stdexcept>

using namespace tessera;

int main() {
  int caught = 0;
  const Task<int> broken = spawn({.name = "read"}, []() -> int { throw std::runtime_error("no such file"); });
  const Task<int> dependent = spawn(
      {.name = "count"}, [](int n) { return n + 1; }, broken);
  try {
    dependent.fetch();
  } catch (const TaskError& e) {
    std::printf("%s\n", e.what());
    ++caught;
  }

  // A region throws the first error and lists the others.
  Array x = Array::ones({4}), y = Array::ones({4});
  Region region;
  region.spawn(
      {.name = "left"}, [](Array&) { throw std::runtime_error("disk full"); }, inout(x));
  region.spawn(
      {.name = "skipped"}, [](Array& v) { v += 1; }, inout(x));
  region.spawn(
      {.name = "right"}, [](Array& v) { v += 1; }, inout(y));
  try {
    region.wait();
  } catch (const TaskError& e) {
    std::printf("%s\n", e.what());
    ++caught;
  }
  std::printf("x %.0f, y %.0f\n", static_cast<double>(max(x).item<float>()), static_cast<double>(max(y).item<float>()));
  return caught == 2 && max(x).item<float>() == 1 && max(y).item<float>() == 2 ? 0 : 1;
}

// Output:
// [task read] no such file; skipped because of it: count
// [task left] disk full
// x 1, y 2
