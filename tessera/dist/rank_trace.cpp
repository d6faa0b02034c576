// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/rank_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <limits>
#include <optional>

#include "tessera/base/log.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/dist/array_collectives.h"
#include "tessera/task/trace_hooks.h"
#include "tessera/task/trace_json.h"

namespace tessera::dist {

using tessera::detail::TraceAccess;
using tessera::detail::tracing::now, tessera::detail::tracing::RankOfTrace;

namespace {

constexpr os::WriteOptions rules{.makes_folders = false};
constexpr std::size_t piece = std::size_t{4} << 20;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
void send(Round& round, int to, std::span<const std::byte> data) {
  const Round::Outgoing out[] = {{to, data}};
  round.exchange(out, {});
}
template <class T>
T receive(Round& round, int from) {
  T value{};
  const Round::Incoming in[] = {{from, std::as_writable_bytes(std::span(&value, 1))}};
  round.exchange({}, in);
  return value;
}

/// Returns the clock of rank 0 minus the clock of this rank. The best of some messages back and forth is used, because
/// the error is at most half of its time.
RankOfTrace::Offset compare_clocks(Round& round, const std::vector<int>& same_machine) {
  constexpr int attempts = 12;
  const auto shares = [&](int rank) { return std::ranges::find(same_machine, rank) != same_machine.end(); };
  std::int64_t offset = 0;
  if (round.rank() == 0) {
    for (int r = 1; r < round.size(); ++r) {
      if (shares(r)) continue;
      std::int64_t best = std::numeric_limits<std::int64_t>::max(), theirs_is_later = 0;
      for (int i = 0; i < attempts; ++i) {
        const std::int64_t begin = now();
        send(round, r, bytes_of(begin));
        const auto theirs = receive<std::int64_t>(round, r);
        const std::int64_t end = now();
        if (end - begin >= best) continue;
        best = end - begin, theirs_is_later = theirs - (begin + best / 2);
      }
      const std::int64_t result = -theirs_is_later;
      send(round, r, bytes_of(result));
    }
  } else if (!shares(0)) {
    for (int i = 0; i < attempts; ++i) {
      receive<std::int64_t>(round, 0);
      const std::int64_t mine = now();
      send(round, 0, bytes_of(mine));
    }
    offset = receive<std::int64_t>(round, 0);
  }
  return {now(), offset};
}

}  // namespace

struct RankTrace::State {
  State(World& w, const std::string& f) : world(w), file(f) {}
  World& world;
  std::filesystem::path file;
  const int exceptions = std::uncaught_exceptions();
  std::optional<Trace> trace;
  RankOfTrace mine;
  bool contributes = true;  ///< ranks of one process share a trace, which the first of them writes

  void start(const std::source_location& where);
  void stop(const std::source_location& where);
  void write_alone();
  /// Runs a collective, unless there is one rank.
  void run(const std::source_location& where, const Callback<void(Round&)>& work) {
    if (Communicator* const c = WorldAccess::communicator(world); c != nullptr && world.size() > 1)
      c->run(call_of(Collective::trace, where), work);
  }
  /// Tells all ranks that rank 0 failed. Throws ArgumentError on all if `error` is not empty.
  void agree(const std::string& error) {
    const std::string of_first = world.size() == 1 ? error : world.broadcast(error);
    if (!of_first.empty())
      fail<ArgumentError>({.operation = "dist::trace", .wrong = "the trace cannot be written: " + of_first});
  }
};

void RankTrace::State::start(const std::source_location& where) {
  std::string error;
  if (world.first()) try {
      os::require_writable(file, rules);
    } catch (const ArgumentError& e) {
      error = e.what();
    }
  agree(error);
  const std::vector<int>& local = WorldAccess::local_ranks(world);
  const std::vector<int>& same_process = WorldAccess::ranks_of_process(world);
  contributes = same_process.front() == world.rank();
  if (std::ssize(same_process) < world.size()) mine.name = fmt::format("rank {}", world.rank());
  mine.rank = world.rank();
  trace.emplace();
  mine.first = mine.last = {now(), 0};
  std::int64_t origin = TraceAccess::since(*trace);
  run(where, [&](Round& round) {
    mine.first = mine.last = compare_clocks(round, local);
    broadcast(round, std::as_writable_bytes(std::span(&origin, 1)), 0);
  });
  mine.origin = origin;
}

void RankTrace::State::stop(const std::source_location& where) {
  std::string error;
  std::optional<os::AtomicFile> out;
  const auto write = [&](std::string_view text) {
    if (error.empty()) try {
        out->write(text);
      } catch (const ArgumentError& e) {
        error = e.what();
      }
  };
  // Prepared outside of the collective, in which this rank does not answer others.
  const TraceAccess::Events events = TraceAccess::events();
  std::uint64_t dropped = 0;
  if (world.first()) {
    try {
      out.emplace(file, rules);
    } catch (const ArgumentError& e) {
      error = e.what();
    }
    write(tessera::detail::tracing::begin_of_trace());
    dropped = events.dropped;
    TraceAccess::write(*trace, events, mine, write);
  }
  run(where, [&](Round& round) {
    mine.last = compare_clocks(round, WorldAccess::local_ranks(world));
    if (round.rank() == 0) {
      std::vector<char> room;
      for (int r = 1; r < round.size(); ++r) {
        bool is_first = true;
        while (const auto size = receive<std::uint64_t>(round, r)) {
          room.resize(size);
          const Round::Incoming in[] = {{r, std::as_writable_bytes(std::span(room))}};
          round.exchange({}, in);
          if (std::exchange(is_first, false)) write(",");
          write({room.data(), room.size()});
        }
        dropped += receive<std::uint64_t>(round, r);
      }
      return;
    }
    std::string text;
    const auto send_text = [&] {
      const std::uint64_t size = text.size();
      send(round, 0, bytes_of(size));
      if (size != 0) send(round, 0, std::as_bytes(std::span(text)));
      text.clear();
    };
    const std::uint64_t mine_dropped = contributes ? events.dropped : 0;
    if (contributes)
      TraceAccess::write(*trace, events, mine, [&](std::string_view more) {
        text += more;
        if (text.size() >= piece) send_text();
      });
    if (!text.empty()) send_text();
    send_text();  // size 0: the end
    send(round, 0, bytes_of(mine_dropped));
  });
  if (world.first() && error.empty()) try {
      write(tessera::detail::tracing::end_of_trace(dropped));
      if (error.empty()) out->commit();
    } catch (const ArgumentError& e) {
      error = e.what();
    }
  trace.reset();
  agree(error);
}

/// Writes the events of this rank to a file of its own.
void RankTrace::State::write_alone() {
  if (!trace || !contributes) return;
  const std::filesystem::path path = tessera::detail::tracing::file_of_rank(file, world.rank());
  os::AtomicFile out(path, rules);
  out.write(tessera::detail::tracing::begin_of_trace());
  const TraceAccess::Events events = TraceAccess::events();
  TraceAccess::write(*trace, events, mine, [&](std::string_view text) { out.write(text); });
  out.write(tessera::detail::tracing::end_of_trace(events.dropped));
  out.commit();
  logging::warn(fmt::format("the trace of rank {} is in {}, because it was not stopped on all ranks", world.rank(),
                            path.string()));
}

RankTrace::RankTrace(World& world, const std::string& file, std::source_location where)
    : state_(new State(world, file)) {
  if (file.empty()) fail<ArgumentError>({.operation = "dist::trace", .wrong = "the file name is empty"});
  std::error_code error;  // the program may change its working directory
  if (const std::filesystem::path full = std::filesystem::absolute(state_->file, error); !error) state_->file = full;
  state_->start(where);
}

void RankTrace::stop(std::source_location where) {
  if (state_->trace) state_->stop(where);
}

RankTrace::~RankTrace() {
  if (!state_->trace) return;
  try {
    if (std::uncaught_exceptions() > state_->exceptions) {
      state_->write_alone();
      return;
    }
    try {
      state_->stop(std::source_location());
    } catch (const ConnectionError& e) {
      logging::warn(e.what());
      state_->write_alone();
    }
  } catch (const std::exception& e) {
    logging::warn(e.what());
  }
}

}  // namespace tessera::dist
