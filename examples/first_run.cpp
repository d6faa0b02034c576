// SPDX-License-Identifier: Apache-2.0
// The first call on a device compiles its kernels, and is slow for that. compile() makes that call ahead; and what was
// compiled stays on disk, so that the next program loads it.
#include <tessera/tessera.h>

#include <chrono>
#include <cstdio>

using namespace tessera;

int main() {
  const Device device = current_device();
  const auto model = setup(sequential(dense<64, 96>, relu, dense<96, 10>), {.seed = 1});
  const Array x = random_normal({1, 64}, 2).eval();
  const auto ms = [&](const auto& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    Queue::of(device).finish();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = ms([&] { model(x).eval(); }), second = ms([&] { model(x).eval(); });
  std::printf("on %s: the first call %.3f ms, the second %.3f ms\n", to_string(device).c_str(), first, second);

  // The warm-up as part of compile: the call below is a replay already.
  Compiled ready = compile(model, {.device = device, .input = {64}});
  const std::uint64_t before = ready.replays();
  const double call = ms([&] { ready(x); });
  std::printf("compiled: %.3f ms, by %llu replay of what compile recorded\n", call,
              static_cast<unsigned long long>(ready.replays() - before));
  return ready.report().recorded && ready.replays() == before + 1 ? 0 : 1;
}
