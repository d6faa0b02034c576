// SPDX-License-Identifier: Apache-2.0
// Parts of a program on different processors: preparation on the CPU, the model on the chosen device, the rest on the
// CPU again. What moves stands in the program's text, and is counted.
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

  // An operation of arrays on two devices is an error: nothing moves by itself.
  bool refused = device == cpu;
  try {
    (predictions + prepared.slice(1, 0, 10)).eval();
  } catch (const DeviceError& e) {
    std::printf("%s\n", e.what());
    refused = true;
  }
  return classes.device() == cpu && predictions.device() == device && refused && (device == cpu) == (bytes == 0) ? 0
                                                                                                                 : 1;
}
