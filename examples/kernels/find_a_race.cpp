// SPDX-License-Identifier: Apache-2.0
// How do I find a data race in a kernel? The interpreter reports it, with both lines. No GPU is needed.
// usage: TESSERA_CHECK=1 TESSERA_DEVICE=interp example_find_a_race
#include <tessera/tessera.h>

#include <cstdlib>
#include <iostream>

using namespace tessera;

/// Reverses each block of 64 numbers in shared memory. Without the barrier, a thread may read an element before it has
/// been written. On many devices the result is still correct most of the time.
auto reverse_blocks(bool with_barrier) {
  return kernel("reverse_blocks", block(64), [=](Buffer<const float> x, Buffer<float> y) {
    Shared<float> tile(64);
    auto t = thread_id();
    tile[t] = x[global_id()];
    if (with_barrier) barrier();
    y[global_id()] = tile[63 - t];
  });
}

int main() {
  const char* check = std::getenv("TESSERA_CHECK");
  const bool checked = check && std::string(check) == "1" && current_device().backend == Backend::interp;
  std::vector<float> numbers(256);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const DeviceBuffer<float> x(numbers);
  DeviceBuffer<float> y(numbers.size());

  reverse_blocks(true).launch({256}, x, y);
  const float first = y.to_vector()[0];
  if (first != 63) return std::cerr << "the first number is " << first << "\n", 1;
  try {
    reverse_blocks(false).launch({256}, x, y);
    y.to_vector();
  } catch (const KernelError& e) {
    std::cout << e.what() << "\n";
    return checked ? 0 : 1;
  }
  std::cout << "No race was reported: set TESSERA_CHECK=1 and TESSERA_DEVICE=interp\n";
  return checked ? 1 : 0;
}

// Output:
// [kernel reverse_blocks, find_a_race.cpp:19] thread (0, 0, 0) of block (0, 0, 0) ...find_a_race.cpp:17...
