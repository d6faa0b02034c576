// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/trace_json.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace tessera::detail::tracing {

namespace {

/// Formats text as a JSON string. Invalid UTF-8 is replaced.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  Writer(std::ostream& to, const Timeline& all, std::int64_t since) : to_(to), all_(all), since_(since) {}

  void write(std::uint64_t dropped) {
    fmt::print(to_, R"({{"displayTimeUnit": "ns", "otherData": {{"dropped events": {}}}, "traceEvents": [)", dropped);
    event(R"("ph": "M", "pid": 1, "name": "process_name", "args": {"name": "threads"})");
    for (std::size_t i = 0; i < all_.threads.size(); ++i) row(1, i + 1, all_.threads[i], i);
    for (const Span& s : all_.spans) span(s);
    for (const std::uint64_t number : all_.order) {
      const TracedTask& t = all_.tasks.at(number);
      if (t.went_on) on_device(number, t);
    }
    for (const std::uint64_t number : all_.order) arrows(all_.tasks.at(number));
    to_ << "\n]}\n";
  }

 private:
  void event(const std::string& fields) {
    fmt::print(to_, "{}\n{{{}}}", first_ ? "" : ",", fields);
    first_ = false;
  }
  void row(int process, std::size_t thread, const std::string& name, std::size_t at) {
    event(fmt::format(R"("ph": "M", "pid": {}, "tid": {}, "name": "thread_name", "args": {{"name": {}}})", process,
                      thread, quoted(name)));
    event(fmt::format(R"("ph": "M", "pid": {}, "tid": {}, "name": "thread_sort_index", "args": {{"sort_index": {}}})",
                      process, thread, at));
  }
  /// In the trace, each asynchronous device is a process with a row for tasks and a row for copies.
  int process_of(Device device) {
    const auto [at, fresh] = devices_.try_emplace(device, static_cast<int>(devices_.size()) + 2);
    if (fresh) {
      event(fmt::format(R"("ph": "M", "pid": {}, "name": "process_name", "args": {{"name": {}}})", at->second,
                        quoted(to_string(device))));
      row(at->second, 1, "tasks", 0);
      row(at->second, 2, "copies", 1);
    }
    return at->second;
  }
  std::string time(std::int64_t at) const {  // in microseconds
    const std::int64_t ns = std::max<std::int64_t>(at - since_, 0);
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }
  static std::string lasts(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
  std::string complete(int process, int thread, const std::string& name, const char* kind, std::int64_t begin,
                       std::int64_t end, const std::string& args) const {
    begin = std::max(begin, since_);
    return fmt::format(
        R"("ph": "X", "pid": {}, "tid": {}, "name": {}, "cat": "{}", "ts": {}, "dur": {}, "args": {{{}}})", process,
        thread, quoted(name), kind, time(begin), lasts(end - begin), args);
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
        event(complete(1, row, t.name, "task", s.begin, s.end, args_of(s.task, t)));
        break;
      }
      case Span::What::wait: {
        const auto target = all_.tasks.find(s.task);
        event(complete(1, row, target == all_.tasks.end() ? "wait" : "wait for " + target->second.name, "wait", s.begin,
                       s.end, target == all_.tasks.end() ? "" : fmt::format(R"("for": {})", s.task)));
        break;
      }
      case Span::What::launch: event(complete(1, row, s.text, "kernel", s.begin, s.end, "")); break;
      case Span::What::copy: copy(s); break;
    }
  }
  void copy(const Span& s) {
    const std::string name = fmt::format("copy {} to {}", to_string(s.from), s.open ? "?" : to_string(s.to));
    const std::string args = fmt::format(R"("bytes": {})", s.bytes);
    event(complete(1, s.thread + 1, name, "copy", s.begin, s.end, args));
    if (s.open) return;
    // Copies on a device may overlap. Complete events must be nested, so asynchronous events are used instead.
    const Device device = is_built_in(s.to.backend) ? s.from : s.to;
    if (is_built_in(device.backend)) return;
    const int process = process_of(device);
    ++copies_;
    event(
        fmt::format(R"("ph": "b", "pid": {}, "tid": 2, "id": {}, "name": {}, "cat": "copy", "ts": {}, "args": {{{}}})",
                    process, copies_, quoted(name), time(s.begin), args));
    event(fmt::format(R"("ph": "e", "pid": {}, "tid": 2, "id": {}, "name": {}, "cat": "copy", "ts": {})", process,
                      copies_, quoted(name), time(s.end)));
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
      const std::int64_t begin = std::max(from.went_on ? from.device_begun : from.begun, since_);
      if (from.begun == 0 || from.ended == 0 || from.ended < since_) continue;
      const std::int64_t end = from.went_on ? from.ended : from.returned;
      const Place at{from.went_on ? process_of(from.device) : 1, from.went_on ? 1 : from.thread + 1,
                     std::max(begin, end - 1)};
      ++arrows_;
      event(fmt::format(R"("ph": "s", "pid": {}, "tid": {}, "id": {}, "name": "{}", "cat": "after", "ts": {})",
                        at.process, at.thread, arrows_, b.order_only ? "order" : "data", time(at.at)));
      event(
          fmt::format(R"("ph": "f", "bp": "e", "pid": 1, "tid": {}, "id": {}, "name": "{}", "cat": "after", "ts": {})",
                      to.thread + 1, arrows_, b.order_only ? "order" : "data", time(to.begun)));
    }
  }

  std::ostream& to_;
  const Timeline& all_;
  const std::int64_t since_;
  std::map<Device, int> devices_;
  std::uint64_t copies_ = 0, arrows_ = 0;
  bool first_ = true;
};

}  // namespace

void write_trace(std::ostream& to, const Timeline& timeline, std::int64_t since, std::uint64_t dropped) {
  Writer(to, timeline, since).write(dropped);
}

}  // namespace tessera::detail::tracing
