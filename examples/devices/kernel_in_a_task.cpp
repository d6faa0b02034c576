// SPDX-License-Identifier: Apache-2.0
// A function as a task that asks for its device and its queue, and launches kernels by itself.
#include "accelerators.h"

using namespace tessera;

const auto fill_with = kernel("fill_with", [](Buffer<float> x, Val<float> value) { x[global_id()] = value; });

std::string manual(Array& x, float value) {
  const Device device = this_task::device();
  Queue& queue = this_task::queue();
  fill_with.launch_on(queue, {static_cast<std::uint64_t>(x.size())}, x, value);
  // Where one vendor's own code is to be used, the device says which vendor's it is.
  return std::string(backend_name(device.backend)) + ":" + std::to_string(device.index);
}

int main() {
  Checks check;
  for (const Device device : (accelerators() | cpu()).devices()) {
    Array x = Array::zeros({1000}, DType::f32, device);
    const Task<std::string> ran = spawn({.scope = device}, manual, inout(x), 42.0f);
    std::printf("ran on %s\n", ran.fetch().c_str());
    check.expect(ran.fetch() == to_string(device), "the device that was asked for");
    check.expect(sum(x).item<float>() == 42000, "filled");
  }

  // A function for each vendor: the task runs only where there is one, and gets that of its device.
  const auto own = for_device<cuda>([] { return "by CUDA's"; }) | for_device<rocm>([] { return "by AMD's"; }) |
                   for_device<oneapi>([] { return "by Intel's"; }) | for_device<opencl>([] { return "by OpenCL's"; }) |
                   for_device<cpu>([] { return "by the CPU's"; });
  for (const Device device : (accelerators() | cpu()).devices())
    if (device.backend != Backend::metal)
      std::printf("%s: %s function\n", to_string(device).c_str(), spawn({.scope = device}, own).fetch());
  return check.wrong();
}
