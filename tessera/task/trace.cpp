// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>

#include "tessera/base/log.h"
#include "tessera/task/trace_json.h"

namespace tessera {

struct detail::TraceState {
  std::filesystem::path path;  // empty: none
  std::ofstream file;
  std::int64_t since = 0;
  std::uint32_t generation = os::fork_generation();  // a child of fork writes nothing of its parent's
  bool under_way = false;                            // guarded by Traces::lock
};

namespace {

using Traced = detail::TraceState;

struct Traces {
  std::mutex lock;
  std::vector<std::shared_ptr<Traced>> all;  // that write a file
};
constinit os::PerProcess<Traces> traces;

[[noreturn]] void cannot_write(const std::filesystem::path& path, int error) {
  fail<ArgumentError>({.asked = "trace",
                       .with = {{"file", path.string()}},
                       .wrong = "it cannot be written: " + std::string(std::strerror(error)),
                       .todo = "Name a file in a folder that exists and in which you may write"});
}

void write_json(std::ostream& to, std::int64_t since) {
  const detail::seeing::Recorded recorded = detail::seeing::what_is_recorded("trace");
  detail::seeing::write_trace(to, detail::seeing::timeline_of(recorded), since, recorded.left_out);
}

std::shared_ptr<Traced> begin(const std::filesystem::path& path, bool by_environment) {
  auto state = std::make_shared<Traced>();
  if (!path.empty()) {
    state->path = path;
    errno = 0;
    state->file.open(path, std::ios::binary | std::ios::trunc);
    if (!state->file) cannot_write(path, errno);
  }
  detail::seeing::at_exit();
  if (!by_environment) detail::seeing::ask_environment();  // which may begin another, so before the lock
  Traces& t = *traces;
  const std::lock_guard hold(t.lock);
  if (!path.empty()) t.all.push_back(state);
  try {
    detail::seeing::start_recording();
  } catch (...) {
    std::erase(t.all, state);
    throw;
  }
  state->since = detail::seeing::now();
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
    ~Stop() { detail::seeing::stop_recording(); }
  } const stop;
  if (state.path.empty()) return;
  errno = 0;
  write_json(state.file, state.since);
  state.file.close();
  if (!state.file) cannot_write(state.path, errno);
}

}  // namespace

Trace::Trace() : state_(begin({}, false)) {}
Trace::Trace(const std::filesystem::path& file) {
  if (file.empty()) cannot_write(file, ENOENT);
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
    fail<ArgumentError>({.asked = "Trace::json",
                         .wrong = "this trace is stopped, and what was recorded is gone",
                         .todo = "Ask before stop(), or read the file"});
  std::ostringstream text;
  write_json(text, state_->since);
  return text.str();
}

void detail::seeing::trace_until_exit(const std::string& file) { begin(file, true); }

void detail::seeing::end_traces() noexcept {
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
  } catch (const std::exception&) {  // no memory
  }
}

}  // namespace tessera
