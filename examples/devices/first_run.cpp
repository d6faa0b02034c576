// SPDX-License-Identifier: Apache-2.0
// How do I avoid a slow first call?
// The first call compiles kernels, which are then cached on disk for later runs. compile() does this in advance.
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
  std::printf("on %s: first call %.3f ms, second call %.3f ms\n", to_string(device).c_str(), first, second);

  // If compile() knows the shape of the input, it also records the forward pass. The first call then replays it.
  Compiled ready = compile(model, {.device = device, .input = {64}});
  const std::uint64_t before = ready.replays();
  const double call = ms([&] { ready(x); });
  std::printf("compiled: first call %.3f ms, %llu replay\n", call,
              static_cast<unsigned long long>(ready.replays() - before));
  return ready.report().recorded && ready.replays() == before + 1 ? 0 : 1;
}

// Output:
// on ...: first call ... ms, second call ... ms
// compiled: first call ... ms, 1 replay
