// SPDX-License-Identifier: Apache-2.0
// How far ahead tasks are put into the queues of devices that work by themselves: few, so that there is something left
// to decide; and never none, so that the device has the next one, and its data, when it is done with one. Internal.
#pragma once

#include <cstdint>

#include "tessera/executor/node.h"

namespace tessera::detail {

class TaskNode;

/// A task for such a device has a place from when it may begin until its work there has ended. Four have one at a time;
/// where that is more than two milliseconds of work, two. Others are kept back, by priority and then as they came, and
/// let go as places become free: of those that may run on several devices of a kind, each to the one that is done with
/// it first, now that it is known what those before it do.
class DispatchLimit {
 public:
  /// Whether it has a place now, on the device that it then has; else it was put off, and is not to be touched.
  static bool try_acquire(TaskNode& node) noexcept;
  /// What is kept back and may have its place goes. Once it has none, nothing happens.
  static void release(TaskNode& node) noexcept;
};

}  // namespace tessera::detail
