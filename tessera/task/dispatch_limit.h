// SPDX-License-Identifier: Apache-2.0
// Limits the number of tasks in the queues of asynchronous devices. The limit is low, so that later tasks can still be
// placed on another device. It is high enough that a device always has its next task and the data for it. Internal.
#pragma once

#include <cstdint>

#include "tessera/executor/node.h"

namespace tessera::detail {

class TaskNode;

/// Assigns a limited number of slots to the tasks of each asynchronous device. A task has a slot from the time when it
/// may begin until its work on the device has ended. A device has four slots, or two if four tasks contain more than
/// two milliseconds of work. Other tasks are deferred and ordered by priority, then by arrival. They are released when
/// slots become free. At that time, a task that may run on several devices of a backend is assigned to the device that
/// finishes it first.
class DispatchLimit {
 public:
  /// Returns true if the task has a slot. The task's device may have changed. Returns false if the task was deferred;
  /// the caller must not access it then.
  static bool try_acquire(TaskNode& node) noexcept;
  /// Frees the task's slot and starts deferred tasks. Does nothing if the task has no slot.
  static void release(TaskNode& node) noexcept;
};

}  // namespace tessera::detail
