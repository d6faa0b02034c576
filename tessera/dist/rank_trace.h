// SPDX-License-Identifier: Apache-2.0
// Traces of all ranks in one file, for ui.perfetto.dev or chrome://tracing (task/trace.h).
//
//   auto seen = dist::trace(world, "run.json");
//   cholesky_into(a);
//   seen.stop();
#pragma once

#include <memory>
#include <source_location>
#include <string>

#include "tessera/dist/world.h"
#include "tessera/task/trace.h"

namespace tessera::dist {

/// Records what the tasks of all ranks do while the object exists. Created by `dist::trace` on all ranks.
class [[nodiscard]] RankTrace {
 public:
  /// Starts recording on all ranks. Called on all ranks. Throws ArgumentError on all ranks if rank 0 cannot write the
  /// file.
  RankTrace(World& world, const std::string& file, std::source_location where);
  /// Calls `stop`. Errors are printed as warnings. If an exception destroys the object, or if another rank has failed,
  /// this rank writes a file of its own: "run.rank2.json" for "run.json".
  ~RankTrace();
  RankTrace(const RankTrace&) = delete;
  RankTrace& operator=(const RankTrace&) = delete;

  /// Stops recording. Rank 0 collects the events of all ranks and writes the file. Called on all ranks. Further calls
  /// have no effect. Throws ArgumentError on all ranks if the file cannot be written, ConnectionError if a rank failed.
  void stop(std::source_location where = std::source_location::current());

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Records a trace of all ranks. When it stops, rank 0 writes it to `file`; an existing file is replaced. Each rank has
/// the rows that trace() describes, and a row for messages to each other rank and from it. Times are those of rank 0:
/// clocks of other machines are compared with its clock at the begin and at the end, to about half the time of a
/// message. Called on all ranks. Throws ArgumentError on all ranks if rank 0 cannot write the file.
[[nodiscard]] inline RankTrace trace(World& world, const std::string& file,
                                     std::source_location where = std::source_location::current()) {
  return RankTrace(world, file, where);
}

}  // namespace tessera::dist
