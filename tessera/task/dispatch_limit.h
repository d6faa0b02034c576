// SPDX-License-Identifier: Apache-2.0
// Limits how many tasks are in the queues of asynchronous devices: few, so that later tasks can still be placed on
// another device, but enough that a device always has its next task and data. Internal.
#pragma once

#include <cstdint>

#include "tessera/executor/node.h"

namespace tessera::detail {

class TaskNode;

/// A task for an asynchronous device holds a slot from the time it may begin until its work on the device has ended. A
/// device has four slots, or two if those hold more than two milliseconds of work. Other tasks are deferred, ordered by
/// priority and then by arrival, and released as slots become free. A task that may run on several devices of a backend
/// is then assigned to the one that finishes it first, given the tasks before it.
class DispatchLimit {
 public:
  /// Returns true if the task has a slot, on its possibly new device. Otherwise it was deferred, and the caller must
  /// not touch it.
  static bool try_acquire(TaskNode& node) noexcept;
  /// Frees the task's slot and starts deferred tasks that fit. Does nothing if the task has no slot.
  static void release(TaskNode& node) noexcept;
};

}  // namespace tessera::detail
