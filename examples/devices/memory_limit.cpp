// SPDX-License-Identifier: Apache-2.0
// How do I limit the memory that a program uses, and see what it uses?
// set_memory_limit() sets a limit per device (TESSERA_MEMORY_LIMIT=4G for all). Exceeding it throws OutOfMemory, which
// lists the largest allocations. The program can continue afterwards.
#include <tessera/array/array.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Device device = current_device();
  const Array weights = Array::ones({256, 1024}).copy();  // 1 MiB
  weights.eval();
  std::printf("live: %.1f MiB\n", static_cast<double>(memory_stats(device).live_bytes) / (1 << 20));

  set_memory_limit(device, 8 << 20);
  bool refused = false;
  try {
    Array::ones({4096, 1024}).eval();  // 16 MiB
  } catch (const OutOfMemory& e) {
    std::printf("%s\n", e.what());
    refused = true;
  }
  const float total = sum(weights).item<float>();  // the error has changed nothing
  std::printf("sum %.0f\n", static_cast<double>(total));
  set_memory_limit(device, 0);  // no limit
  Array::ones({4096, 1024}).eval();
  return refused && total == 256 * 1024 ? 0 : 1;
}

// Output:
// live: ... MiB
// ...16 MiB...
// sum 262144
