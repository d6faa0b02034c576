// SPDX-License-Identifier: Apache-2.0
// Writes a timeline in Chrome's trace event format, which Perfetto can read. Internal.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>

#include "tessera/base/callback.h"
#include "tessera/task/timeline.h"

namespace tessera::detail::tracing {

/// What a rank writes to the trace of several ranks.
struct RankOfTrace {
  int rank = 0;
  std::string name;  ///< of its processes: "rank 2"
  /// The clock of rank 0 minus the one of this rank, at two times of this rank, in nanoseconds. Between them it is
  /// interpolated, because clocks of machines drift apart by milliseconds in some minutes.
  struct Offset {
    std::int64_t at = 0, offset = 0;
  } first, last;
  std::int64_t origin = 0;  ///< time of rank 0 at which the trace begins

  /// Converts a time of this rank to the clock of rank 0.
  std::int64_t time(std::int64_t mine) const;
};

/// Writes the events after `since`. Times are relative to `since`.
void write_trace(std::ostream& to, const Timeline& timeline, std::int64_t since, std::uint64_t dropped);
/// Writes only the events, separated by commas. Numbers of processes, threads and arrows differ from those of other
/// ranks.
void write_events(std::ostream& to, const Timeline& timeline, std::int64_t since, const RankOfTrace& rank);
/// Returns "run.rank2.json" for "run.json".
std::filesystem::path file_of_rank(const std::filesystem::path& file, int rank);
/// The text before and after the events of a trace.
std::string begin_of_trace();
std::string end_of_trace(std::uint64_t dropped);

}  // namespace tessera::detail::tracing

namespace tessera {

class Trace;

namespace detail {

/// Access to members of Trace for dist::RankTrace.
struct TraceAccess {
  static std::int64_t since(const Trace& trace);
  /// The events so far.
  struct Events {
    tracing::Timeline timeline;
    std::uint64_t dropped;  ///< number of events that are missing
  };
  static Events events();
  /// Passes the text of the events to `to`, in pieces.
  static void write(const Trace& trace, const Events& events, const tracing::RankOfTrace& rank,
                    const Callback<void(std::string_view)>& to);
};

}  // namespace detail
}  // namespace tessera
