// SPDX-License-Identifier: Apache-2.0
// Work over all devices: tasks that may run on any of them are spread over them, those with data go to where it is.
#include "accelerators.h"

#include <map>

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();

  // Jobs of their own: none has data anywhere, so each goes to the device that will be done with it first.
  std::vector<Task<Array>> jobs;
  std::map<Device, int> histogram;
  for (int i = 0; i < 64; ++i)
    jobs.push_back(spawn({.scope = gpus}, [i] { return sum(Array::full({64, 64}, i) * 2.0); }));
  float total = 0;
  for (const Task<Array>& job : jobs) {
    ++histogram[job.device()];
    total += job.fetch().item<float>();
  }
  for (const auto& [device, count] : histogram) std::printf("%s: %d jobs\n", to_string(device).c_str(), count);
  check.expect(total == 64 * 64 * 2 * (63 * 64 / 2), "all jobs");
  check.expect(histogram.size() > 1 || gpus.devices().size() == 1, "more than one device has worked");

  // One algorithm over all of them: its tiles are spread, and the work with them.
  const BlockArray a = BlockArray::random_uniform({256, 256}, {64, 64}, 1, gpus);
  std::printf("%s\nmean %g\n", a.where().c_str(), static_cast<double>(mean(a).item<float>()));
  check.expect(std::abs(mean(a).item<float>() - 0.5f) < 0.02f, "the mean");
  return check.wrong();
}
