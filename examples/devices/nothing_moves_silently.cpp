// SPDX-License-Identifier: Apache-2.0
// How do I see which kernels ran where, and what was copied?
// Operands on different devices are an error, and copies are explicit. placement_log() counts kernels and copies.
#include <tessera/array/array.h>
#include <tessera/device/placement/placement_scope.h>

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
  const float total = sum(a + b.to(first)).item<float>();

  std::uint64_t left_second = 0, reached_first = 0;
  const PlacementLog log = placement_log();
  for (const auto& c : log.copies) {
    if (c.device == second) left_second = c.to_host_bytes;
    if (c.device == first) reached_first = c.to_device_bytes;
  }
  std::cout << to_string(log);
  return refused && total == 500500 && left_second == 4000 && reached_first >= 4000 ? 0 : 1;
}

// Output:
// [+] the operands are on different devices (left = cpu:0, right = interp:0)...
//
// device      kernel            launches
// cpu:0       arange                   1
// cpu:0       reduce_sum_add           1
//
// device                copied to it      copied to the host           copied within
// cpu:0                3.91 KiB in 1            4 bytes in 1            0 bytes in 0
// interp:0              0 bytes in 0           3.91 KiB in 1            0 bytes in 0
//
// ...
