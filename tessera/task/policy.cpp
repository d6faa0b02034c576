// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/policy.h"

#include <algorithm>
#include <chrono>

#include "tessera/base/error.h"
#include "tessera/task/device_load.h"
#include "tessera/task/task_node.h"

namespace tessera::detail {

Device choose_by_policy(const InheritedOptions& options, const TaskPlacer& placer, const TaskOptions& call_options,
                        const std::string& kernel_name) {
  TaskToPlace task;
  task.name = !call_options.name.empty() ? call_options.name
              : !kernel_name.empty()     ? kernel_name
                                         : name_of_location(call_options.where);
  task.priority = options.priority, task.bytes = placer.bytes();
  task.default_device = placer.choose();
  std::vector<Device> devices = placer.scope().devices();
  if (std::ranges::find(devices, task.default_device) == devices.end())
    devices.push_back(task.default_device);  // it has the task's data
  for (const Device d : devices) {
    const DeviceLoad& load = DeviceLoad::of(d);
    task.candidates.push_back({.device = d,
                               .waiting = std::max(load.placed(), DeviceTasks::of(d).in_flight()),
                               .median_duration = Nanoseconds(load.median()),
                               .bytes = placer.bytes_on(d)});
  }
  const Device chosen = options.policy->choose(task);
  if (std::ranges::find(devices, chosen) == devices.end()) {
    std::string names;
    for (const Device d : devices) names += (names.empty() ? "" : ", ") + to_string(d);
    fail<DeviceError>({.operation = "spawn",
                       .with = {{"task", task.name}, {"policy chose", to_string(chosen)}, {"candidates", names}},
                       .wrong = "the task cannot run on the chosen device",
                       .remedy = "Return one of the candidates, or widen the scope"});
  }
  return chosen;
}

}  // namespace tessera::detail
