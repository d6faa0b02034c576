// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/policy.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/task/node.h"

namespace tessera::detail {

Device choose_by_policy(const OptionsInForce& options, const Placing& placing, const TaskOptions& said,
                        const std::string& kernel_name) {
  TaskToPlace task;
  task.name = !said.name.empty() ? said.name : !kernel_name.empty() ? kernel_name : name_of_place(said.where);
  task.priority = options.priority, task.bytes = placing.bytes();
  task.by_default = placing.choose();
  std::vector<Device> devices = placing.scope().devices();
  if (std::ranges::find(devices, task.by_default) == devices.end())
    devices.push_back(task.by_default);  // with its data
  for (const Device d : devices) {
    const DeviceLoad& load = DeviceLoad::of(d);
    task.candidates.push_back({.device = d,
                               .waiting = std::max(load.placed(), DeviceTasks::of(d).under_way()),
                               .usual = std::chrono::nanoseconds(load.median()),
                               .bytes = placing.bytes_on(d)});
  }
  const Device chosen = options.policy->choose(task);
  if (std::ranges::find(devices, chosen) == devices.end()) {
    std::string names;
    for (const Device d : devices) names += (names.empty() ? "" : ", ") + to_string(d);
    fail<DeviceError>({.asked = "spawn",
                       .with = {{"task", task.name}, {"policy chose", to_string(chosen)}, {"candidates", names}},
                       .wrong = "the task may not run on that device",
                       .todo = "Let the policy choose one of its candidates, or widen the scope"});
  }
  return chosen;
}

}  // namespace tessera::detail
