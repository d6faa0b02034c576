// SPDX-License-Identifier: Apache-2.0
// User-defined placement. A policy chooses the device of each task when the task is created.
//
//   struct MostIdle : PlacementPolicy {
//     Device choose(const TaskToPlace& task) override {
//       return std::ranges::min_element(task.candidates, {}, &TaskToPlace::Candidate::waiting)->device;
//     }
//   };
//   Region r({.scope = cuda(all), .policy = std::make_shared<MostIdle>()});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/task/options.h"

namespace tessera {

/// Describes a new task to a policy.
struct TaskToPlace {
  /// A device on which the task may run.
  struct Candidate {
    Device device;              ///< The device.
    std::uint32_t waiting = 0;  ///< number of tasks that are placed there and have not ended
    /// Median time for which recent tasks kept the device busy. 0 if no task has ended.
    Nanoseconds median_duration{};
    std::uint64_t bytes = 0;  ///< part of `TaskToPlace::bytes` for which this device has the newest contents
  };
  std::string name;                   ///< the given name, or the kernel's name, or "file:line"
  int priority = 0;                   ///< priority in TaskOptions
  std::vector<Candidate> candidates;  ///< the devices that scope, function and arguments allow, in order; never empty
  std::uint64_t bytes = 0;  ///< size of its arrays; written arrays count three times, because they are copied in,
                            ///< copied back and usually read again
  Device default_device;    ///< device on which the task would run without a policy
};

/// Base class of policies. Set a policy in TaskOptions: for one task, for a region, or with `with`. It applies to all
/// tasks created there, and to tasks that these create. Tasks that are placed by a policy are not moved later. Without
/// a policy, a task may move to another GPU when it begins.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  /// Returns the device of one of `task.candidates`. If it returns another device, `spawn` throws DeviceError. If it
  /// throws, `spawn` rethrows the exception. In both cases the task is not created. May be called concurrently by
  /// threads that create tasks. Must not create tasks.
  virtual Device choose(const TaskToPlace& task) = 0;
};

namespace detail {
class TaskPlacer;
/// Calls the policy that applies to the task and returns its choice.
Device choose_by_policy(const InheritedOptions& options, const TaskPlacer& placer, const TaskOptions& call_options,
                        const std::string& kernel_name);
}  // namespace detail

}  // namespace tessera
