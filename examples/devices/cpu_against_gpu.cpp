// SPDX-License-Identifier: Apache-2.0
// How do I compare the speed of the CPU and a GPU?
// Alternate the devices, discard the first call, wait for each result, and report medians. See also `tessera bench`.
// usage: example_cpu_against_gpu [SIZE]. SIZE is the number of inputs and outputs of the layer (default: 256).
#include <tessera/tessera.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace tessera;

struct Timed {
  Device device;
  Sequential<Dense> model;
  Array x;
  std::vector<double> us = {};
  void call() {
    const auto start = std::chrono::steady_clock::now();
    model(x).eval();
    Queue::of(device).finish();  // launches are asynchronous
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
};

int main(int argc, char** argv) {
  const std::int64_t size = argc > 1 ? std::atoll(argv[1]) : 256;
  if (size < 1 || size > 16384) return std::fprintf(stderr, "SIZE must be between 1 and 16384\n"), 2;
  const DeviceScope cpu(Device{Backend::cpu, 0});
  const auto model = setup(Sequential{Dense{.inputs = size, .outputs = size}}, {.seed = 1});
  const Array x = random_normal({16, size}, 2).eval();

  std::vector<Timed> all{{current_device(), model, x}};
  if (has_gpu()) all.push_back({gpus().front(), to(model, gpus().front()), x.to(gpus().front())});
  for (int round = 0; round < 12; ++round)
    for (Timed& t : all) t.call();
  for (Timed& t : all) {
    const double first = t.us.front();
    t.us.erase(t.us.begin());
    std::ranges::sort(t.us);
    std::printf("%-9s median %.1f us, quartiles %.1f to %.1f us, first call %.1f us\n", to_string(t.device).c_str(),
                t.us[t.us.size() / 2], t.us[t.us.size() / 4], t.us[3 * t.us.size() / 4], first);
  }
  // The results of all devices must agree within rounding.
  const Array last = all.back().model(all.back().x).to(all.front().device);
  return max(abs(last - model(x))).item<float>() < 1e-4f ? 0 : 1;
}

// Output:
// cpu:0     median ... us, quartiles ... to ... us, first call ... us
// ...
