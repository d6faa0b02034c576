// SPDX-License-Identifier: Apache-2.0
// Waiting: reading a result waits for it, and nothing else is needed, also where tasks and plain launches are mixed. To
// have a device, a backend or everything done, there is synchronize.
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
    scale.launch(n, x, 3.0f);  // no task: a launch of the program's own comes after the tasks before it
    spawn({.scope = device}, scale, n, x, 7.0f);
    check.expect(x.to_vector<float>() == std::vector<float>(1000, 42), "in the order of the program");

    spawn({.scope = device}, scale, n, x, 0.5f);
    synchronize(device);  // all tasks and all work of this device
    check.expect(task.ended(), "they have ended");
    synchronize(device.backend);  // of all devices of its backend
    check.expect(sum(x).item<float>() == 21000, "halved");
    std::printf("%s: done\n", to_string(device).c_str());
  }
  synchronize(gpus);
  synchronize();  // of every device in use

  // An error that a task left and nobody was told of is told by whoever waits next, once.
  spawn({.scope = gpus, .name = "broken"}, [] { throw std::runtime_error("no such file"); });
  try {
    synchronize();
    check.expect(false, "synchronize tells the error");
  } catch (const TaskError& e) {
    std::printf("%s\n", e.what());
  }
  synchronize();
  return check.wrong();
}
