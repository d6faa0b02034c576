// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/trace.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <mutex>
#include <ostream>
#include <sstream>
#include <streambuf>

#include "tessera/base/log.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/task/trace_hooks.h"
#include "tessera/task/trace_json.h"

namespace tessera {

struct detail::TraceState {
  std::filesystem::path path;  // empty if there is no file
  std::int64_t since = 0;
  std::uint32_t generation = os::fork_generation();  // child processes do not write the files of their parent
  bool by_environment = false;
  bool under_way = false;  // the file is being written; guarded by Traces::lock
};

namespace {

using Traced = detail::TraceState;

struct Traces {
  std::mutex lock;
  std::vector<std::shared_ptr<Traced>> all;  // traces that write a file
};
constinit os::PerProcess<Traces> traces;

constexpr os::WriteOptions rules{.makes_folders = false};

/// Calls `write`. If it throws, reports that the trace cannot be written.
template <class Write>
void writing(const Write& write) {
  try {
    write();
  } catch (const ArgumentError& e) {
    fail<ArgumentError>({.operation = "trace", .wrong = std::string("it cannot be written: ") + e.what()});
  }
}

/// A stream buffer that passes text on: to a file object, which has a buffer itself.
class Buffer : public std::streambuf {
 public:
  explicit Buffer(const Callback<void(std::string_view)>& write) : write_(write) {}

 private:
  int_type overflow(int_type c) override {
    if (c == traits_type::eof()) return 0;
    const char letter = traits_type::to_char_type(c);
    write_({&letter, 1});
    return c;
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    write_({text, static_cast<std::size_t>(size)});
    return size;
  }
  const Callback<void(std::string_view)>& write_;
};

/// Calls `write` with a stream whose text `to` gets.
template <class Write>
void stream(const Callback<void(std::string_view)>& to, const Write& write) {
  Buffer buffer(to);
  std::ostream stream(&buffer);
  stream.exceptions(std::ios::badbit);  // rethrow exceptions of `to`
  write(stream);
}

void write_json(std::ostream& to, std::int64_t since) {
  const detail::tracing::RecordedEvents recorded = detail::tracing::recorded_events("trace");
  detail::tracing::write_trace(to, detail::tracing::timeline_of(recorded), since, recorded.dropped);
}

std::shared_ptr<Traced> begin(const std::filesystem::path& path, bool by_environment) {
  auto state = std::make_shared<Traced>();
  if (!path.empty()) {
    state->by_environment = by_environment;
    state->path = std::filesystem::absolute(path);  // because the program may change its working directory
    writing([&] { os::require_writable(path, rules); });
  }
  detail::tracing::at_exit();
  if (!by_environment) detail::tracing::read_environment();  // may start another trace, so this is done before locking
  Traces& t = *traces;
  const std::lock_guard hold(t.lock);
  if (!path.empty()) t.all.push_back(state);
  try {
    detail::tracing::start_recording();
  } catch (...) {
    std::erase(t.all, state);
    throw;
  }
  state->since = detail::tracing::now();
  state->under_way = true;
  return state;
}

void end(Traced& state) {
  if (state.generation != os::fork_generation()) return;
  Traces& t = *traces;
  const std::lock_guard hold(t.lock);
  if (!std::exchange(state.under_way, false)) return;
  std::erase_if(t.all, [&](const auto& s) { return s.get() == &state; });
  struct Stop {
    ~Stop() { detail::tracing::stop_recording(); }
  } const stop;
  if (state.path.empty()) return;
  const int rank = detail::tracing::rank_of_process;
  const bool of_rank = state.by_environment && rank >= 0;
  writing([&] {
    os::AtomicFile file(of_rank ? detail::tracing::file_of_rank(state.path, rank) : state.path, rules);
    stream([&](std::string_view text) { file.write(text); }, [&](std::ostream& to) { write_json(to, state.since); });
    file.commit();
  });
}

}  // namespace

Trace::Trace() : state_(begin({}, false)) {}
Trace::Trace(const std::string& file) {
  if (file.empty()) fail<ArgumentError>({.operation = "trace", .wrong = "cannot be written: the file name is empty"});
  state_ = begin(file, false);
}
Trace::~Trace() {
  try {
    stop();
  } catch (const std::exception& e) {
    logging::warn(e.what());
  }
}

void Trace::stop() { end(*state_); }

std::string Trace::json() const {
  const std::lock_guard hold(traces->lock);
  if (!state_->under_way || state_->generation != os::fork_generation())
    fail<ArgumentError>({.operation = "Trace::json",
                         .wrong = "the trace was stopped, and its events have been discarded",
                         .remedy = "Call it before stop(), or read the file"});
  std::ostringstream text;
  write_json(text, state_->since);
  return text.str();
}

std::int64_t detail::TraceAccess::since(const Trace& trace) { return trace.state_->since; }

detail::TraceAccess::Events detail::TraceAccess::events() {
  const tracing::RecordedEvents recorded = tracing::recorded_events("trace");
  return {tracing::timeline_of(recorded), recorded.dropped};
}

void detail::TraceAccess::write(const Trace& trace, const Events& events, const tracing::RankOfTrace& rank,
                                const Callback<void(std::string_view)>& to) {
  stream(to, [&](std::ostream& s) { tracing::write_events(s, events.timeline, since(trace), rank); });
}

std::filesystem::path detail::tracing::file_of_rank(const std::filesystem::path& file, int rank) {
  std::filesystem::path path = file;
  return path.replace_extension(".rank" + std::to_string(rank) + file.extension().string());
}

void detail::tracing::trace_until_exit(const std::string& file) { begin(file, true); }

void detail::tracing::end_traces() noexcept {
  try {
    std::vector<std::shared_ptr<Traced>> left;
    {
      Traces& t = *traces;
      const std::lock_guard hold(t.lock);
      left = t.all;
    }
    for (const auto& state : left) {
      try {
        end(*state);
      } catch (const std::exception& e) {
        logging::warn(e.what());
      }
    }
  } catch (const std::exception&) {  // out of memory
  }
}

}  // namespace tessera
