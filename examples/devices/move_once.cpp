// SPDX-License-Identifier: Apache-2.0
// How do I avoid repeated copies, and free cached memory?
// Copy data before the loop, not in it. A Placement counts copies. trim() returns cached memory to the device.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

int main() {
  const Device cpu{Backend::cpu, 0}, device = current_device();
  const Array data = random_uniform({64, 256}, 7, -1, 1, cpu).eval();
  const auto model = setup(sequential(dense<256, 64>, relu, dense<64, 8>), {.seed = 1});

  const auto bytes_copied = [&](const auto& loop) {
    const Placement counted;
    loop();
    Queue::of(device).finish();  // launches are asynchronous, so wait before reading counters or clocks
    std::uint64_t bytes = 0;
    for (const auto& copy : counted.log().copies) bytes += copy.to_device_bytes + copy.to_host_bytes;
    return bytes;
  };
  const std::uint64_t each_time = bytes_copied([&] {
    for (int epoch = 0; epoch < 10; ++epoch) model(data.to(device)).eval();
  });
  const Array x = data.to(device);
  const std::uint64_t once = bytes_copied([&] {
    for (int epoch = 0; epoch < 10; ++epoch) model(x).eval();
  });
  std::printf("10 epochs on %s copy %llu bytes with a copy in the loop, %llu with a copy before it\n",
              to_string(device).c_str(), static_cast<unsigned long long>(each_time),
              static_cast<unsigned long long>(once));

  const MemoryStats memory = memory_stats(device);
  const std::uint64_t freed = trim(device);
  std::printf("%llu bytes live, peak %llu; freed %llu of %llu cached bytes\n",
              static_cast<unsigned long long>(memory.live_bytes), static_cast<unsigned long long>(memory.peak_bytes),
              static_cast<unsigned long long>(freed), static_cast<unsigned long long>(memory.cached_bytes));
  const bool copied = device == cpu || each_time >= 10u * 64 * 256 * 4;
  return once == 0 && copied && memory_stats(device).cached_bytes == 0 ? 0 : 1;
}

// Output:
// 10 epochs on ... copy ... bytes with a copy in the loop, 0 with a copy before it
// ... bytes live, peak ...; freed ... of ... cached bytes
