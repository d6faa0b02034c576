// SPDX-License-Identifier: Apache-2.0
// Observes tasks: traces for ui.perfetto.dev or chrome://tracing, the graph of a region, and statistics.
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
struct TraceAccess;
}  // namespace detail

/// Records what tasks do while the object exists. Each task needs about 200 bytes. All events together need at most 1
/// GiB; further events are dropped and counted. Several objects can exist at the same time. Created by `trace`.
class [[nodiscard]] Trace {
 public:
  Trace();  ///< Starts recording.
  /// Starts recording. The trace is written to `file` when the object is destroyed.
  explicit Trace(const std::string& file);
  /// Calls `stop`. Errors are printed as warnings.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Stops recording and writes the file. Further calls have no effect. Throws ArgumentError if the file cannot be
  /// written.
  void stop();
  /// Returns the events recorded so far in Chrome's trace event format, like the file. Throws ArgumentError after
  /// `stop`.
  std::string json() const;

 private:
  friend struct detail::TraceAccess;
  std::shared_ptr<detail::TraceState> state_;
};

/// Records a trace and writes it to `file` when the Trace is destroyed or the program ends. An existing file is
/// replaced. The trace has a row for each thread with its tasks, waits, copies between devices and kernel launches, a
/// row for each asynchronous device, and arrows for dependencies. Only tasks that are created while the Trace exists
/// are recorded. Throws ArgumentError immediately if the file cannot be written.
///
/// If the environment variable TESSERA_TASK_TRACE is set to a file name, the whole program is traced. Processes created
/// by fork are not traced. The ranks of a dist::World write files of their own: "run.rank2.json" for "run.json".
/// dist::trace writes one file for all ranks.
[[nodiscard]] inline Trace trace(const std::string& file) { return Trace(file); }
/// Records a trace without writing a file, for `dot`, `summary` and `json`.
[[nodiscard]] inline Trace trace() { return Trace(); }

/// Returns the tasks of a region that were created during a Trace, as a Graphviz graph (`dot -Tsvg`). It shows names,
/// devices, progress and dependencies. Dotted arrows are dependencies that only affect the order. Dependencies on tasks
/// that ended long ago may be missing. Throws ArgumentError if no Trace is active.
std::string dot(const Region& region);

/// Times of all tasks with the same name on one device, in seconds. Waits for other tasks and for copies are not
/// included.
struct TaskTimes {
  std::string name;                              ///< The name.
  Device device;                                 ///< The device.
  std::uint64_t count = 0;                       ///< The number of tasks.
  double mean = 0, min = 0, max = 0, total = 0;  ///< The mean, shortest, longest and total time.
};
/// Tiles of block arrays that this process has sent to another rank, and received from it, during a trace.
struct RankTraffic {
  int rank = 0;                                      ///< The other rank.
  std::uint64_t sent = 0, received = 0;              ///< The number of completed messages.
  std::uint64_t sent_bytes = 0, received_bytes = 0;  ///< Their size, without headers.
  /// Time in seconds in which at least one tile from this rank was expected: its memory was ready, but its data had not
  /// arrived.
  double waited = 0;
};
/// Statistics of all recorded tasks.
struct TaskSummary {
  /// Number of tasks; `ended` includes `failed`, `skipped` and `cancelled`.
  std::uint64_t made = 0, ended = 0, running = 0, not_begun = 0;
  /// Number of tasks that threw, that were skipped because a dependency failed, and that were cancelled.
  std::uint64_t failed = 0, skipped = 0, cancelled = 0;
  std::vector<TaskTimes> times;    ///< times of completed tasks, in descending order of the total
  std::vector<RankTraffic> ranks;  ///< messages by rank; they are not counted as tasks
  TaskCopies copies;               ///< copies since recording began
  double waited = 0;          ///< total time in seconds in which threads waited for tasks without running other tasks
  std::uint64_t dropped = 0;  ///< number of events that were dropped because the memory limit was reached
};
/// Returns statistics since the oldest active Trace began. Throws ArgumentError if there is no active Trace.
TaskSummary summary();
/// Formats the statistics as a table.
std::string to_string(const TaskSummary& summary);

}  // namespace tessera
