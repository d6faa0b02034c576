// SPDX-License-Identifier: Apache-2.0
// How do I launch kernels from inside a task?
// In a task, this_task::device() and this_task::queue() return the device and the queue to use.
#include <cstdio>

#include <tessera/kernel/kernel.h>

#include "accelerators.h"

using namespace tessera;

const auto fill_with = kernel("fill_with", [](Buffer<float> x, Val<float> value) { x[global_id()] = value; });

std::string fill(Array& x, float value) {
  const Device device = this_task::device();
  Queue& queue = this_task::queue();
  fill_with.launch_on(queue, {static_cast<std::uint64_t>(x.size())}, x, value);
  // Use device.backend if you call the API of a vendor.
  return std::string(backend_name(device.backend)) + ":" + std::to_string(device.index);
}

int main() {
  Checks check;
  for (const Device device : (accelerators() | cpu()).devices()) {
    Array x = Array::zeros({1000}, DType::f32, device);
    const Task<std::string> ran = spawn({.scope = device}, fill, inout(x), 42.0f);
    std::printf("ran on %s\n", ran.fetch().c_str());
    check.expect(ran.fetch() == to_string(device), "runs on the requested device");
    check.expect(sum(x).item<float>() == 42000, "array is filled");
  }

  // Provides a function for each backend. The task calls the one for its device.
  const auto variants = for_device<cuda>([] { return "CUDA"; }) | for_device<rocm>([] { return "ROCm"; }) |
                        for_device<oneapi>([] { return "oneAPI"; }) | for_device<opencl>([] { return "OpenCL"; }) |
                        for_device<cpu>([] { return "CPU"; });
  for (const Device device : (accelerators() | cpu()).devices())
    if (device.backend != Backend::metal)
      std::printf("%s calls the %s variant\n", to_string(device).c_str(), spawn({.scope = device}, variants).fetch());
  return check.failures();
}

// Output:
// ran on cpu:0
// ...
// cpu:0 calls the CPU variant
// ...
