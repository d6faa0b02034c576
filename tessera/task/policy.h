// SPDX-License-Identifier: Apache-2.0
// Where tasks run, by a rule of one's own: of the devices on which a task may run, a policy chooses one when the task
// is made.
//
//   struct MostIdle : PlacementPolicy {
//     Device choose(const TaskToPlace& task) override {
//       return std::ranges::min_element(task.candidates, {}, &TaskToPlace::Candidate::waiting)->device;
//     }
//   };
//   Region r({.scope = cuda(all), .policy = std::make_shared<MostIdle>()});
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/task/options.h"

namespace tessera {

/// A task that is being made, as far as it matters to where it runs.
struct TaskToPlace {
  /// A device on which the task may run.
  struct Candidate {
    Device device;                     ///< The device.
    std::uint32_t waiting = 0;         ///< tasks that are to run there and have not ended
    std::chrono::nanoseconds median_duration{};  ///< that a task keeps it busy: the median of the last ones; 0: none has ended
    std::uint64_t bytes = 0;           ///< of `TaskToPlace::bytes`, those whose newest contents are there
  };
  std::string name;                   ///< said, or the kernel's, or "file:line"
  int priority = 0;                   ///< as it was said
  std::vector<Candidate> candidates;  ///< where scope, function and arguments let it run, in order; at least one
  std::uint64_t bytes = 0;  ///< of its arrays; what it writes counts three times: it comes, is wanted there, and goes
  Device default_device;        ///< where it would go without a policy
};

/// Given in TaskOptions, for one task, for a region, or with `with`: it then places all tasks that are made there and
/// those that these make. What it places stays there; without one, tasks may yet move to another GPU when they begin.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  /// The device of one of `task.candidates`; any other is a DeviceError at `spawn`, and what this throws is thrown
  /// there: the task is not made then. Called by threads that make tasks, several at once; it makes none itself.
  virtual Device choose(const TaskToPlace& task) = 0;
};

namespace detail {
class TaskPlacer;
/// As the policy says that is in force for the task.
Device choose_by_policy(const InheritedOptions& options, const TaskPlacer& placer, const TaskOptions& call_options,
                        const std::string& kernel_name);
}  // namespace detail

}  // namespace tessera
