// SPDX-License-Identifier: Apache-2.0
// Placement is explicit: operands on different devices are an error, a copy is asked for by name, and what ran and
// moved can always be read back.
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main() {
  const Device first{Backend::cpu, 0}, second{Backend::interp, 0};  // both exist on every machine
  const Array a = Array::arange(1000, 0, 1, DType::f32, first);
  const Array b = Array::ones({1000}, DType::f32, second);
  bool refused = false;
  try {
    sum(a + b).item<float>();
  } catch (const DeviceError& e) {
    std::cout << e.what() << "\n\n";
    refused = true;
  }
  const float total = sum(a + b.to(first)).item<float>();  // the copy is in the program's text

  std::uint64_t left_second = 0, reached_first = 0;
  const PlacementLog log = placement_log();
  for (const auto& c : log.copies) {
    if (c.device == second) left_second = c.to_host_bytes;
    if (c.device == first) reached_first = c.to_device_bytes;
  }
  std::cout << to_string(log);
  return refused && total == 500500 && left_second == 4000 && reached_first >= 4000 ? 0 : 1;
}
