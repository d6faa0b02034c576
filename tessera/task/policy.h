// SPDX-License-Identifier: Apache-2.0
// User-defined placement: a policy chooses the device of each task when the task is created.
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

/// The properties of a new task that a policy can use.
struct TaskToPlace {
  /// A device on which the task may run.
  struct Candidate {
    Device device;              ///< The device.
    std::uint32_t waiting = 0;  ///< tasks that are placed there and have not ended
    /// Median time that the latest tasks kept it busy; 0 if none has ended.
    Nanoseconds median_duration{};
    std::uint64_t bytes = 0;  ///< of `TaskToPlace::bytes`, those whose newest contents are there
  };
  std::string name;                   ///< as given, or the kernel's name, or "file:line"
  int priority = 0;                   ///< as given in TaskOptions
  std::vector<Candidate> candidates;  ///< the devices that scope, function and arguments allow, in order; at least one
  std::uint64_t bytes = 0;  ///< of its arrays; written arrays count three times: they are copied in, copied back and
                            ///< usually read there again
  Device default_device;    ///< where it would run without a policy
};

/// Set in TaskOptions for one task, a region, or with `with`; applies to all tasks created there and to the tasks that
/// those create. A task placed by a policy does not move; without a policy, tasks may still move to another GPU when
/// they begin.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  /// Returns the device of one of `task.candidates`. `spawn` throws DeviceError for any other device and passes on
  /// exceptions; the task is not created then. Called concurrently by threads that create tasks. Must not create tasks.
  virtual Device choose(const TaskToPlace& task) = 0;
};

namespace detail {
class TaskPlacer;
/// Returns the choice of the policy that applies to the task.
Device choose_by_policy(const InheritedOptions& options, const TaskPlacer& placer, const TaskOptions& call_options,
                        const std::string& kernel_name);
}  // namespace detail

}  // namespace tessera
