// SPDX-License-Identifier: Apache-2.0
// The processor that a program computes on: found by itself, or named for a part of the program.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

int main() {
  // Detect: a GPU if there is one that works, else the CPU; and the rule by which it was chosen.
  const Device found = current_device();
  std::printf("%s\n\n", why_current_device().c_str());
  for (const Device device : devices())
    std::printf("%-9s %s\n", to_string(device).c_str(), device_info(device).name.c_str());

  // Select: what is new in a scope is on its device. Names may come from anywhere (`tessera devices` lists them).
  Device where{};
  {
    const DeviceScope scope(parse_device("cpu:0"));
    where = Array::arange(10).device();
  }
  const Array there = Array::arange(10);
  std::printf("\nwithin the scope %s, behind it %s\n", to_string(where).c_str(), to_string(there.device()).c_str());
  return where == Device{Backend::cpu, 0} && there.device() == found ? 0 : 1;
}
