// SPDX-License-Identifier: Apache-2.0
// How do I wait for a device or for all tasks?
// Reading a result waits for it. synchronize() waits for a device, a backend, a scope or everything.
#include <cstdio>

#include <tessera/kernel/kernel.h>

#include "accelerators.h"

using namespace tessera;

const auto scale = kernel("scale", [](Buffer<float> x, Val<float> by) { x[global_id()] = x[global_id()] * by; });

int main() {
  Checks check;
  const Extent n{1000};
  const Scope gpus = accelerators();
  for (const Device device : gpus.devices()) {
    const DeviceScope current(device);
    Array x = Array::ones({1000});

    const Task<void> task = spawn({.scope = device}, scale, n, x, 2.0f);
    scale.launch(n, x, 3.0f);  // ordinary launches are ordered with the tasks
    spawn({.scope = device}, scale, n, x, 7.0f);
    check.expect(x.to_vector<float>() == std::vector<float>(1000, 42), "in program order");

    spawn({.scope = device}, scale, n, x, 0.5f);
    synchronize(device);  // waits for all tasks and queued work of the device
    check.expect(task.ended(), "task has ended");
    synchronize(device.backend);  // waits for all devices of a backend
    check.expect(sum(x).item<float>() == 21000, "halved");
    std::printf("%s: done\n", to_string(device).c_str());
  }
  synchronize(gpus);
  synchronize();  // waits for all devices

  // If an error has not been observed yet, the next synchronize() throws it. It is thrown only once.
  spawn({.scope = gpus, .name = "broken"}, [] { throw std::runtime_error("no such file"); });
  try {
    synchronize();
    check.expect(false, "synchronize throws the error");
  } catch (const TaskError& e) {
    std::printf("%s\n", e.what());
  }
  synchronize();
  return check.failures();
}

// Output:
// ...: done
// ...
// [task broken] no such file
