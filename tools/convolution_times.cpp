// SPDX-License-Identifier: Apache-2.0
// Times convolutions for tools/compare_convolution_times_with_pytorch.py. Reads lines "WHAT N IN OUT ROWS KERNEL STRIDE
// PADDING GROUPS SECONDS". WHAT is forward, dx (gradient of the images), dw (gradient of the weight), or pool (gradient
// of average_pool2d, which ignores OUT and GROUPS). Answers each line with the microseconds per call, the processor
// microseconds, and the peak memory in bytes. The memory includes the result but not the operands.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <string>

#include "tessera/array/array.h"
#include "tessera/device/context.h"
#include "tessera/device/memory/storage.h"
#include "tessera/grad/grad.h"
#include "tessera/ops/convolution.h"

namespace {

using namespace tessera;

constexpr Device cpu{Backend::cpu, 0};

struct Case {
  std::string what;
  std::int64_t n = 0, in = 0, out = 0, rows = 0, kernel = 0, stride = 0, padding = 0, groups = 0;
};

std::function<Array()> call_of(const Case& c) {
  const Array x = random_uniform({c.n, c.in, c.rows, c.rows}, 1).eval();
  const Array w = random_uniform({c.out, c.in / c.groups, c.kernel, c.kernel}, 2).eval();
  const Convolution2d options{.stride = c.stride, .padding = c.padding, .groups = c.groups};
  if (c.what == "forward") return [=] { return conv2d(x, w, {}, options); };
  const auto gradient = [](const auto& f, const Array& by) -> std::function<Array()> {
    const auto [y, back] = pullback(f, by);
    return [back = back, g = random_uniform(y.shape(), 3).eval()] { return back(g); };
  };
  if (c.what == "pool")
    return gradient([=](const Array& a) { return average_pool2d(a, {c.kernel, c.stride, c.padding}); }, x);
  if (c.what == "dx") return gradient([=](const Array& a) { return conv2d(a, w, {}, options); }, x);
  return gradient([=](const Array& a) { return conv2d(x, a, {}, options); }, w);
}

/// Returns wall time and processor time per call.
std::pair<double, double> microseconds_of(const std::function<Array()>& call, double seconds) {
  using Clock = std::chrono::steady_clock;
  call().eval();
  const auto start = Clock::now();
  const std::clock_t used = std::clock();
  double spent = 0;
  long times = 0;
  do {
    call().eval();
    spent = std::chrono::duration<double>(Clock::now() - start).count(), ++times;
  } while (spent < seconds);
  const auto each = 1e6 / static_cast<double>(times);
  return {spent * each, static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC * each};
}

}  // namespace

int main() try {
  const DeviceScope scope(cpu);
  std::printf("%s\n", device_info(cpu).name.c_str());
  std::fflush(stdout);
  Case c;
  double seconds = 0;
  while (std::cin >> c.what >> c.n >> c.in >> c.out >> c.rows >> c.kernel >> c.stride >> c.padding >> c.groups >>
         seconds) {
    const std::function<Array()> call = call_of(c);
    const auto [us, processor] = microseconds_of(call, seconds);
    trim(cpu), reset_peak_memory(cpu);
    const std::uint64_t before = memory_stats(cpu).live_bytes;
    call().eval();
    std::printf("%.3f %.3f %llu\n", us, processor,
                static_cast<unsigned long long>(memory_stats(cpu).peak_bytes - before));
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "convolution_times: %s\n", e.what());
  return 1;
}
