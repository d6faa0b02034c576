// SPDX-License-Identifier: Apache-2.0
// Seeing what tasks do: traces for ui.perfetto.dev or chrome://tracing, the graph of a region, figures.
//
//   auto seen = trace("run.json");     // until the end of the scope, or of the program
//   Region r;
//   for (Array& part : x) r.spawn(step, in(part), inout(total));
//   r.wait();
//   std::ofstream("graph.dot") << dot(r);
//   std::puts(to_string(summary()).c_str());
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/task/region.h"

namespace tessera {

namespace detail {
struct TraceState;
}

/// While it lives, what tasks do is recorded: about 200 bytes each, 1 GiB at most; what does not fit is counted.
/// Several may live at once. Made by `trace`.
class [[nodiscard]] Trace {
 public:
  Trace();  ///< Records until the object is destroyed.
  /// Records until the object is destroyed, and writes the trace to `file`.
  explicit Trace(const std::filesystem::path& file);
  /// As `stop`; what that would throw is a warning.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Ends it, and writes its file; a second time it does nothing. ArgumentError if that cannot be written.
  void stop();
  /// What has been recorded so far, as its file would have it: Chrome's trace events. ArgumentError once it is stopped.
  std::string json() const;

 private:
  std::shared_ptr<detail::TraceState> state_;
};

/// Replaces `file` when the Trace goes, or when the program ends: a row for each thread with the tasks that it ran,
/// their waits, copies between devices and launches of kernels, a row for each device that works by itself, arrows from
/// what tasks came after. Tasks are seen that are made while it lives. ArgumentError, now, if the file cannot be
/// written. TESSERA_TASK_TRACE=file does the same from the first task to the end of the program. A child of fork is
/// none of either's.
[[nodiscard]] inline Trace trace(const std::filesystem::path& file) { return Trace(file); }
/// Without a file: for `dot`, `summary` and `json`.
[[nodiscard]] inline Trace trace() { return Trace(); }

/// The tasks of a region that were made while a Trace lived, in the language of Graphviz (`dot -Tsvg`): names, devices,
/// how far each is, and what it came after (dotted: only the order mattered). Of tasks that had ended long before, some
/// arrows may be missing. ArgumentError if no Trace lives.
std::string dot(const Region& region);

/// The tasks of one name on one device. Seconds; what a task waited for others and for copies is left out.
struct TaskTimes {
  std::string name;                              ///< The name.
  Device device;                                 ///< The device.
  std::uint64_t count = 0;                       ///< The number of tasks.
  double mean = 0, min = 0, max = 0, total = 0;  ///< The mean, shortest, longest and total time.
};
/// Figures of all tasks that were seen.
struct TaskSummary {
  std::uint64_t made = 0, ended = 0, running = 0, not_begun = 0;  ///< tasks; `ended` counts the following three, too
  /// Tasks that threw, that were skipped since one before them failed, and that were cancelled.
  std::uint64_t failed = 0, skipped = 0, cancelled = 0;
  std::vector<TaskTimes> times;  ///< of those that ran to their end, the largest total first
  TaskCopies copies;             ///< since it began
  double waited = 0;             ///< seconds in which threads waited for tasks and ran none meanwhile, all together
  std::uint64_t dropped = 0;     ///< events for which there was no room
};
/// Of what was recorded since the oldest Trace began that still lives. ArgumentError if there is none.
TaskSummary summary();
/// A table.
std::string to_string(const TaskSummary& summary);

}  // namespace tessera
