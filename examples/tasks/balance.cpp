// SPDX-License-Identifier: Apache-2.0
// How do I spread independent work over all devices?
// A task whose scope has several devices runs where its data is, or on the device expected to finish first.
#include "accelerators.h"

#include <cmath>
#include <cstdio>
#include <map>

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();

  // These tasks have no data, so each runs on the device that is expected to finish it first.
  std::vector<Task<Array>> jobs;
  std::map<Device, int> count;
  for (int i = 0; i < 64; ++i)
    jobs.push_back(spawn({.scope = gpus}, [i] { return sum(Array::full({64, 64}, i) * 2.0); }));
  float total = 0;
  for (const Task<Array>& job : jobs) {
    ++count[job.device()];
    total += job.fetch().item<float>();
  }
  for (const auto& [device, n] : count) std::printf("%s: %d jobs\n", to_string(device).c_str(), n);
  check.expect(total == 64 * 64 * 2 * (63 * 64 / 2), "sum of all jobs");
  check.expect(count.size() > 1 || gpus.devices().size() == 1, "several devices ran jobs");

  // The tiles of a block array are distributed over the devices, and so are operations on it.
  const BlockArray a = BlockArray::random_uniform({256, 256}, {64, 64}, 1, gpus);
  std::printf("%s\nmean %g\n", a.where().c_str(), static_cast<double>(mean(a).item<float>()));
  check.expect(std::abs(mean(a).item<float>() - 0.5f) < 0.02f, "mean of uniform numbers");
  return check.failures();
}

// Output:
// ...: ... jobs
// ...
// (256, 256) f32 in tiles of (64, 64):
// ...
// mean 0.500...
