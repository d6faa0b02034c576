// SPDX-License-Identifier: Apache-2.0
// Compares calls of a compiled model with calls of the original, for a 784-512-512-10 network at batch sizes 1, 16 and
// 128. The two models run alternately, and each call waits for its result. The ratio is the time of the original
// divided by the time of the compiled model.
//
// Usage: compiled [--one] [DEVICE...] (default: cpu). --one runs only batch size 1. The exit status is 1 if a compiled
// model of any level and precision is less than 1.3 times as fast as the original at batch size 1.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/pairs.h"
#include "tessera/array/generator.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/nn/compile.h"

namespace {

using namespace tessera;

std::uint64_t launches(const auto& call) {
  const Placement counted;
  call();
  std::uint64_t n = 0;
  for (const auto& k : counted.log().kernels) n += k.launches;
  return n;
}

bool measure(Device device, bool one) {
  const DeviceScope scope(device);
  const auto model = setup(sequential(dense<784, 512>, relu, dense<512, 512>, relu, dense<512, 10>), {.seed = 1});
  bool held = true;
  struct Case {
    CompileLevel level;
    CompilePrecision precision;
  };
  for (const std::int64_t batch : one ? std::vector{1} : std::vector{1, 16, 128})
    for (const auto& [level, precision] :
         {Case{CompileLevel::standard, CompilePrecision::f32}, Case{CompileLevel::aggressive, CompilePrecision::f32},
          Case{CompileLevel::standard, CompilePrecision::q8_0}}) {
      const Compiled fast = compile(model, {.level = level, .precision = precision});
      const Array x = random_normal({batch, 784}, 7).eval();
      Queue& queue = current_queue(device);
      const auto ours = [&] { fast(x), queue.finish(); };
      const auto theirs = [&] { model(x).eval(), queue.finish(); };
      ours(), theirs();
      const bench::Pair p = bench::time_pair(false, ours, theirs, 1.5, false);
      std::printf(
          "%-10s batch %3lld  %-10s %-4s  %8.1f us, uncompiled %8.1f us: %.2f times as fast (%.2f to %.2f); "
          "%llu and %llu launches\n",
          to_string(device).c_str(), static_cast<long long>(batch), std::string(compile_level_name(level)).c_str(),
          std::string(compile_precision_name(precision)).c_str(), p.ours_us, p.theirs_us, 1 / p.median, 1 / p.high,
          1 / p.low, static_cast<unsigned long long>(launches(ours)),
          static_cast<unsigned long long>(launches(theirs)));
      std::fflush(stdout);
      if (batch == 1) held = held && 1 / p.median >= 1.3;
    }
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  bool held = true, one = false;
  std::vector<Device> devices;
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string_view("--one"))
      one = true;
    else
      devices.push_back(parse_device(argv[i]));
  }
  if (devices.empty()) devices.push_back(Device{Backend::cpu, 0});
  for (const Device device : devices) held = measure(device, one) && held;
  return held ? 0 : 1;
}
