// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/trace_json.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace tessera::detail::tracing {

namespace {

/// Numbers of the processes of a trace that belong to one rank: its threads, its messages and its devices.
constexpr int processes_of_rank = 1000;

/// Formats text as a JSON string. Invalid UTF-8 is replaced.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  Writer(std::ostream& to, const Timeline& all, std::int64_t since, const RankOfTrace* rank)
      : to_(to),
        all_(all),
        since_(since),
        rank_(rank),
        threads_(1 + (rank == nullptr ? 0 : rank->rank * processes_of_rank)),
        copies_(rank == nullptr ? 0 : std::uint64_t(rank->rank) << 32),
        arrows_(copies_) {}

  void write() {
    process(threads_, "threads");
    for (std::size_t i = 0; i < all_.threads.size(); ++i) row(threads_, i + 1, all_.threads[i], i);
    for (const Span& s : all_.spans) span(s);
    for (const std::uint64_t number : all_.order) {
      const TracedTask& t = all_.tasks.at(number);
      if (t.message)
        message(t);
      else if (t.went_on)
        on_device(number, t);
    }
    for (const std::uint64_t number : all_.order) arrows(all_.tasks.at(number));
  }

 private:
  void event(const std::string& fields) {
    fmt::print(to_, "{}\n{{{}}}", first_ ? "" : ",", fields);
    first_ = false;
  }
  void process(int number, const std::string& name) {
    event(fmt::format(R"("ph": "M", "pid": {}, "name": "process_name", "args": {{"name": {}}})", number,
                      quoted(rank_ == nullptr || rank_->name.empty() ? name : rank_->name + ": " + name)));
    if (rank_ != nullptr)
      event(fmt::format(R"("ph": "M", "pid": {}, "name": "process_sort_index", "args": {{"sort_index": {}}})", number,
                        number));
  }
  void row(int process, std::size_t thread, const std::string& name, std::size_t at) {
    event(fmt::format(R"("ph": "M", "pid": {}, "tid": {}, "name": "thread_name", "args": {{"name": {}}})", process,
                      thread, quoted(name)));
    event(fmt::format(R"("ph": "M", "pid": {}, "tid": {}, "name": "thread_sort_index", "args": {{"sort_index": {}}})",
                      process, thread, at));
  }
  /// In the trace, each asynchronous device is a process with a row for tasks and a row for copies.
  int process_of(Device device) {
    const auto [at, fresh] = devices_.try_emplace(device, threads_ + 2 + static_cast<int>(devices_.size()));
    if (fresh) {
      process(at->second, to_string(device));
      row(at->second, 1, "tasks", 0);
      row(at->second, 2, "copies", 1);
    }
    return at->second;
  }
  /// Nanoseconds since the trace began, on the clock of rank 0.
  std::int64_t nanoseconds(std::int64_t at) const {
    return std::max<std::int64_t>(rank_ == nullptr ? at - since_ : rank_->time(at) - rank_->origin, 0);
  }
  static std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
  std::string time(std::int64_t at) const { return microseconds(nanoseconds(at)); }
  std::string complete(int process, int thread, const std::string& name, const char* kind, std::int64_t begin,
                       std::int64_t end, const std::string& args) const {
    begin = std::max(begin, since_);
    return fmt::format(
        R"("ph": "X", "pid": {}, "tid": {}, "name": {}, "cat": "{}", "ts": {}, "dur": {}, "args": {{{}}})", process,
        thread, quoted(name), kind, time(begin), microseconds(nanoseconds(end) - nanoseconds(begin)), args);
  }
  std::string args_of(std::uint64_t number, const TracedTask& t) const {
    return fmt::format(R"("task": {}, "device": {}, "state": "{}", "made": {})", number, quoted(to_string(t.device)),
                       to_string(t.state), time(t.made));
  }

  void span(const Span& s) {
    if (s.end < since_) return;
    const int row = s.thread + 1;
    switch (s.what) {
      case Span::What::task: {
        const TracedTask& t = all_.tasks.at(s.task);
        event(complete(threads_, row, t.name, "task", s.begin, s.end, args_of(s.task, t)));
        break;
      }
      case Span::What::wait: {
        const auto target = all_.tasks.find(s.task);
        event(complete(threads_, row, target == all_.tasks.end() ? "wait" : "wait for " + target->second.name, "wait",
                       s.begin, s.end, target == all_.tasks.end() ? "" : fmt::format(R"("for": {})", s.task)));
        break;
      }
      case Span::What::launch: event(complete(threads_, row, s.text, "kernel", s.begin, s.end, "")); break;
      case Span::What::copy: copy(s); break;
    }
  }
  void copy(const Span& s) {
    const std::string name = fmt::format("copy {} to {}", to_string(s.from), s.open ? "?" : to_string(s.to));
    const std::string args = fmt::format(R"("bytes": {})", s.bytes);
    event(complete(threads_, s.thread + 1, name, "copy", s.begin, s.end, args));
    if (s.open) return;
    // Copies on a device may overlap. Complete events must be nested, so asynchronous events are used instead.
    const Device device = is_built_in(s.to.backend) ? s.from : s.to;
    if (is_built_in(device.backend)) return;
    overlapping(process_of(device), 2, name, "copy", s.begin, s.end, args);
  }
  void overlapping(int process, int thread, const std::string& name, const char* kind, std::int64_t begin,
                   std::int64_t end, const std::string& args) {
    ++copies_;
    event(fmt::format(R"("ph": "b", "pid": {}, "tid": {}, "id": {}, "name": {}, "cat": "{}", "ts": {}, "args": {{{}}})",
                      process, thread, copies_, quoted(name), kind, time(begin), args));
    event(fmt::format(R"("ph": "e", "pid": {}, "tid": {}, "id": {}, "name": {}, "cat": "{}", "ts": {})", process,
                      thread, copies_, quoted(name), kind, time(end)));
  }
  /// Messages to and from other ranks are rows of a process.
  void message(const TracedTask& t) {
    const std::int64_t end = t.ended != 0 ? t.ended : all_.until;
    if (t.begun == 0 || end < since_) return;
    const int number = threads_ + 1, row_of_peer = 2 * t.message->peer + (t.message->sends ? 1 : 2);
    if (peers_.empty()) process(number, "messages");
    if (peers_.insert(row_of_peer).second)
      row(number, static_cast<std::size_t>(row_of_peer),
          fmt::format("{} rank {}", t.message->sends ? "to" : "from", t.message->peer),
          static_cast<std::size_t>(row_of_peer));
    overlapping(number, row_of_peer, t.name, "message", std::max(t.begun, since_), end,
                fmt::format(R"("bytes": {}, "state": "{}")", t.message->bytes, to_string(t.state)));
  }
  void on_device(std::uint64_t number, const TracedTask& t) {
    const std::int64_t end = t.ended != 0 ? t.ended : all_.until;
    if (end < since_) return;
    event(complete(process_of(t.device), 1, t.name, "task", t.device_begun, end, args_of(number, t)));
  }

  struct Place {
    int process, thread;
    std::int64_t at;
  };
  /// An arrow must start inside its source event, so it starts at the end of that event. It ends at the beginning of
  /// its target.
  void arrows(const TracedTask& to) {
    if (to.begun == 0 || to.begun < since_) return;
    for (const TracedTask::Before& b : to.after) {
      const auto found = all_.tasks.find(b.task);
      if (found == all_.tasks.end()) continue;
      const TracedTask& from = found->second;
      const bool goes_on = from.went_on && !from.message;
      const std::int64_t begin = std::max(goes_on ? from.device_begun : from.begun, since_);
      if (from.begun == 0 || from.ended == 0 || from.ended < since_) continue;
      const std::int64_t end = goes_on ? from.ended : from.returned;
      const Place at{goes_on ? process_of(from.device) : threads_, goes_on ? 1 : from.thread + 1,
                     std::max(begin, end - 1)};
      ++arrows_;
      event(fmt::format(R"("ph": "s", "pid": {}, "tid": {}, "id": {}, "name": "{}", "cat": "after", "ts": {})",
                        at.process, at.thread, arrows_, b.order_only ? "order" : "data", time(at.at)));
      event(
          fmt::format(R"("ph": "f", "bp": "e", "pid": {}, "tid": {}, "id": {}, "name": "{}", "cat": "after", "ts": {})",
                      threads_, to.thread + 1, arrows_, b.order_only ? "order" : "data", time(to.begun)));
    }
  }

  std::ostream& to_;
  const Timeline& all_;
  const std::int64_t since_;
  const RankOfTrace* const rank_;  // null: a trace of one process
  const int threads_;              // the number of the process whose rows are the threads
  std::map<Device, int> devices_;
  std::set<int> peers_;
  std::uint64_t copies_, arrows_;
  bool first_ = true;
};

}  // namespace

std::int64_t RankOfTrace::time(std::int64_t mine) const {
  const double part = last.at == first.at ? 0 : double(mine - first.at) / double(last.at - first.at);
  return mine + first.offset + static_cast<std::int64_t>(part * double(last.offset - first.offset));
}

std::string begin_of_trace() { return R"({"displayTimeUnit": "ns", "traceEvents": [)"; }

std::string end_of_trace(std::uint64_t dropped) {
  return fmt::format("\n], \"otherData\": {{\"dropped events\": {}}}}}\n", dropped);
}

void write_trace(std::ostream& to, const Timeline& timeline, std::int64_t since, std::uint64_t dropped) {
  to << begin_of_trace();
  Writer(to, timeline, since, nullptr).write();
  to << end_of_trace(dropped);
}

void write_events(std::ostream& to, const Timeline& timeline, std::int64_t since, const RankOfTrace& rank) {
  Writer(to, timeline, since, &rank).write();
}

}  // namespace tessera::detail::tracing
