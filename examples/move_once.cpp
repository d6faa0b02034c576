// SPDX-License-Identifier: Apache-2.0
// Data that a loop reads again and again are moved once; what the loop copies can be read back, and how much memory it
// takes, and cached memory goes back to the device when asked.
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
    Queue::of(device).finish();  // launches return at once: before a clock or a counter is read, they are waited for
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
  std::printf("10 passes on %s copy %llu bytes, and %llu with the data there\n", to_string(device).c_str(),
              static_cast<unsigned long long>(each_time), static_cast<unsigned long long>(once));

  const MemoryStats memory = memory_stats(device);
  const std::uint64_t given_back = trim(device);
  std::printf("%llu bytes live, %llu at most so far; of %llu cached %llu went back to the device\n",
              static_cast<unsigned long long>(memory.live_bytes), static_cast<unsigned long long>(memory.peak_bytes),
              static_cast<unsigned long long>(memory.cached_bytes), static_cast<unsigned long long>(given_back));
  return once == 0 && (device == cpu || each_time >= 10u * 64 * 256 * 4) && memory_stats(device).cached_bytes == 0 ? 0
                                                                                                                   : 1;
}
