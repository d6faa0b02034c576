// SPDX-License-Identifier: Apache-2.0
// How do I make sure that nothing runs on or is copied to another device?
// In a strict Placement, a kernel or a copy on a device that is not listed throws before it runs.
#include <tessera/array/array.h>
#include <tessera/device/placement/placement_scope.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Device allowed = current_device(), other{Backend::interp, 0};
  if (allowed == other) return std::puts("choose another device than interp:0"), 0;
  const Array x = Array::arange(1000);

  const Placement rule = Placement::strict(allowed);
  const float total = sum(x * 2).item<float>();  // the device is allowed, and reading on the host is always allowed
  std::printf("sum %.0f\n", static_cast<double>(total));
  try {
    x.to(other).eval();
  } catch (const DeviceError& e) {
    std::printf("refused: %s\n", e.what());
    return total == 999000 ? 0 : 1;
  }
  return 1;
}

// Output:
// sum 999000
// refused: ...
