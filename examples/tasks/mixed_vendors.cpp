// SPDX-License-Identifier: Apache-2.0
// How do I combine GPUs of different vendors?
// Tasks copy the data that they need. If two devices cannot access each other, the copy uses the CPU.
#include <cstdio>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();
  const Device first = gpus.devices().front(), last = gpus.devices().back();
  const TaskCopies before = task_copies();

  const BlockArray data = BlockArray::ones({64, 64}, {32, 32}, DType::f32, first);
  const Task<float> total = spawn(
      {.scope = last},
      [](const std::vector<Array>& tiles) {
        float result = 0;
        for (const Array& tile : tiles) result += sum(tile).item<float>();
        return result;
      },
      std::vector<Accessed>{in(data.tile(0, 0)), in(data.tile(0, 1)), in(data.tile(1, 0)), in(data.tile(1, 1))});
  std::printf("created on %s, summed on %s: %g\n", to_string(first).c_str(), to_string(total.device()).c_str(),
              static_cast<double>(total.fetch()));
  check.expect(total.fetch() == 64 * 64, "sum");
  check.expect(task_copies().fetched - before.fetched == (first == last ? 0u : 4u), "each tile is copied once");

  // Adds the partial results of all devices on the CPU.
  Array sums = Array::zeros({1}, DType::f32, Device{});
  Region r;
  for (const Device device : gpus.devices()) {
    Array part = Array::full({1}, 2, DType::f32, device);
    r.spawn(
        {.scope = device}, [](Array& x) { x *= 3; }, inout(part));
    r.spawn(
        {.scope = cpu()}, [](const Array& x, Array& s) { s += x; }, in(part), inout(sums));
  }
  r.wait();
  check.expect(sums.item<float>() == 6 * static_cast<float>(gpus.devices().size()), "partial results of all devices");
  return check.failures();
}

// Output:
// created on ..., summed on ...: 4096
