// SPDX-License-Identifier: Apache-2.0
// Observing tasks: traces for ui.perfetto.dev or chrome://tracing, a region's graph, statistics.
//
//   auto seen = trace("run.json");     // until the end of the scope, or of the program
//   Region r;
//   for (Array& part : x) r.spawn(step, in(part), inout(total));
//   r.wait();
//   std::ofstream("graph.dot") << dot(r);
//   std::puts(to_string(summary()).c_str());
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/task/region.h"

namespace tessera {

namespace detail {
struct TraceState;
}

/// Records what tasks do during its lifetime: about 200 bytes per task, 1 GiB at most; further events are counted as
/// dropped. Several can exist at once. Created by `trace`.
class [[nodiscard]] Trace {
 public:
  Trace();  ///< Records until the object is destroyed.
  /// Records until the object is destroyed, and writes the trace to `file`.
  explicit Trace(const std::string& file);
  /// Calls `stop`; errors are printed as warnings.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Ends the recording and writes the file. Further calls do nothing. Throws ArgumentError if the file cannot be
  /// written.
  void stop();
  /// The recorded events so far in the format of the file: Chrome's trace events. Throws ArgumentError after `stop`.
  std::string json() const;

 private:
  std::shared_ptr<detail::TraceState> state_;
};

/// Writes `file`, replacing it, when the Trace is destroyed or the program ends. It has a row per thread with its
/// tasks, waits, copies between devices and kernel launches, a row per asynchronous device, and arrows for
/// dependencies. Only tasks that are created during its lifetime are recorded. Throws ArgumentError immediately if the
/// file cannot be written. TESSERA_TASK_TRACE=file does the same from the first task to the end of the program. A
/// forked child is not recorded by either.
[[nodiscard]] inline Trace trace(const std::string& file) { return Trace(file); }
/// A trace without a file, for `dot`, `summary` and `json`.
[[nodiscard]] inline Trace trace() { return Trace(); }

/// The tasks of a region that were created during a Trace, as a Graphviz graph (`dot -Tsvg`): names, devices, progress
/// and dependencies (dotted: ordering only). For tasks that had ended long before, some arrows may be missing. Throws
/// ArgumentError if no Trace is active.
std::string dot(const Region& region);

/// The tasks of one name on one device, in seconds; waits for other tasks and for copies are not included.
struct TaskTimes {
  std::string name;                              ///< The name.
  Device device;                                 ///< The device.
  std::uint64_t count = 0;                       ///< The number of tasks.
  double mean = 0, min = 0, max = 0, total = 0;  ///< The mean, shortest, longest and total time.
};
/// Statistics of all recorded tasks.
struct TaskSummary {
  std::uint64_t made = 0, ended = 0, running = 0, not_begun = 0;  ///< tasks; `ended` includes the following three
  /// Tasks that threw, that were skipped because a dependency failed, and that were cancelled.
  std::uint64_t failed = 0, skipped = 0, cancelled = 0;
  std::vector<TaskTimes> times;  ///< of completed tasks, in descending order of the total
  TaskCopies copies;             ///< since recording began
  double waited = 0;             ///< total seconds in which threads waited for tasks without running others
  std::uint64_t dropped = 0;     ///< events that did not fit into memory
};
/// The statistics since the oldest active Trace began. Throws ArgumentError if there is none.
TaskSummary summary();
/// The statistics as a table.
std::string to_string(const TaskSummary& summary);

}  // namespace tessera
