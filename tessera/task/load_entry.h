// SPDX-License-Identifier: Apache-2.0
// A task's entry in the load of its device (device_load.h). Internal.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "tessera/task/device_load.h"
#include "tessera/task/task_node.h"

namespace tessera::detail {

struct TaskNode::LoadEntry {
  struct Before {
    executor::Ref<TaskNode> node;
    Dependency kind;
  };
  explicit LoadEntry(DeviceLoad* l) : load(l) {}
  DeviceLoad* load;
  std::int64_t begun = 0;
  std::vector<Device> others;           // devices to which it may migrate
  bool place = false;                   // has a slot of DispatchLimit
  std::atomic<bool> on_device = false;  // its work is in the device's queue
  std::mutex lock;                      // guards the two vectors, which other threads change before the task begins
  std::vector<Before> chained_predecessors;  // tasks queued before it on the same device; it begins before they end
  std::vector<executor::Ref<TaskNode>> extra_predecessors;  // further predecessors of its chained successors
  std::exception_ptr error;  // error of its function, reported after the chained predecessors have ended
};

}  // namespace tessera::detail
