// SPDX-License-Identifier: Apache-2.0
// How do I run a kernel as a task?
// Pass the kernel to spawn() with its arguments. Tasks are ordered by the buffers that they read and write.
#include <cstdio>

#include <tessera/kernel/kernel.h>

#include "accelerators.h"

using namespace tessera;

const auto vector_add = kernel("vector_add", [](Buffer<float> c, Buffer<const float> a, Buffer<const float> b) {
  auto i = global_id();
  c[i] = a[i] + b[i];
});
const auto fill_with = kernel("fill_with", [](Buffer<float> x, Val<float> value) { x[global_id()] = value; });

int main() {
  Checks check;
  const auto all_are = [](const Array& x, float value) {
    return min(x).item<float>() == value && max(x).item<float>() == value;
  };
  const Extent n{1000};

  Array on_cpu = Array::zeros({1000}, DType::f32, Device{});
  spawn(fill_with, n, on_cpu, 42.0f).wait();
  check.expect(all_are(on_cpu, 42), "filled on the CPU");

  for (const Device device : accelerators().devices()) {
    const auto scope = with({.scope = device});
    Array a = Array::zeros({1000}, DType::f32, device), b = Array::zeros({1000}, DType::f32, device),
          c = Array::zeros({1000}, DType::f32, device);
    // The third task reads what the first two write, so it runs after them.
    spawn(fill_with, n, a, 40.0f);
    spawn(fill_with, n, b, 2.0f);
    const Task<void> added = spawn(vector_add, n, c, a, b);
    spawn(fill_with, n, a, 0.0f);  // writes a buffer that the third task reads, so it runs after the third
    std::printf("%s runs on %s\n", added.name().c_str(), to_string(added.device()).c_str());
    check.expect(added.device() == device, "runs on the requested device");
    check.expect(all_are(c, 42) && all_are(a, 0), "results as in program order");  // reading waits for the tasks
  }
  return check.failures();
}

// Output:
// vector_add runs on ...
// ...
