// SPDX-License-Identifier: Apache-2.0
// How do I use the CPU and a GPU in one program?
// Prepare data on the CPU, run the model on the GPU, and post-process on the CPU. Copies are explicit and are counted.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Device cpu{Backend::cpu, 0}, device = current_device();
  const auto model = setup(sequential(dense<784, 128>, relu, dense<128, 10>, Softmax{}), {.seed = 1});
  const Placement counted;

  const Array prepared = [&] {
    const DeviceScope scope(cpu);
    const Array raw = random_uniform({32, 784}, 7, 0, 255);
    return (raw / 255 - 0.5).eval();
  }();
  const Array predictions = model(prepared.to(device));
  const Array classes = argmax(predictions.to(cpu), 1).eval();

  std::uint64_t bytes = 0;
  for (const auto& copy : counted.log().copies) bytes += copy.to_device_bytes + copy.to_host_bytes;
  std::printf("prepared on %s, predicted on %s, classes on %s; %llu bytes copied between devices\n",
              to_string(prepared.device()).c_str(), to_string(predictions.device()).c_str(),
              to_string(classes.device()).c_str(), static_cast<unsigned long long>(bytes));

  // Operands on different devices are an error, because nothing is copied implicitly.
  bool refused = device == cpu;
  try {
    (predictions + prepared.slice(1, 0, 10)).eval();
  } catch (const DeviceError& e) {
    std::printf("%s\n", e.what());
    refused = true;
  }
  const bool placed = classes.device() == cpu && predictions.device() == device;
  return placed && refused && (device == cpu) == (bytes == 0) ? 0 : 1;
}

// Output:
// prepared on cpu:0, predicted on ..., classes on cpu:0; ... bytes copied between devices
// ...
