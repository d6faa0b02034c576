// SPDX-License-Identifier: Apache-2.0
// How do I list the devices and choose one?
// By default arrays are created on the best working GPU, or on the CPU. A DeviceScope selects another device.
#include <tessera/array/array.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Device found = current_device();
  std::printf("%s\n\n", why_current_device().c_str());
  for (const Device device : devices())
    std::printf("%-9s %s\n", to_string(device).c_str(), device_info(device).name.c_str());

  Device inside{};
  {
    const DeviceScope scope(parse_device("cpu:0"));  // uses the names that `tessera devices` prints
    inside = Array::arange(10).device();
  }
  const Device after = Array::arange(10).device();
  std::printf("\ninside the scope: %s, after it: %s\n", to_string(inside).c_str(), to_string(after).c_str());
  return inside == Device{Backend::cpu, 0} && after == found ? 0 : 1;
}

// Output:
// ...
// cpu:0     ...
// ...
// interp:0  reference interpreter
//
// inside the scope: cpu:0, after it: ...
