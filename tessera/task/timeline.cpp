// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/timeline.h"

#include <algorithm>
#include <map>

namespace tessera::detail::tracing {

namespace {

/// Reconstructs the activities of one thread from its events.
class Reader {
 public:
  Reader(Timeline& all, int thread) : all_(all), thread_(thread) {}

  void read(const Event& e, std::string_view text) {
    switch (e.kind) {
      case Kind::made: {
        TracedTask& t = all_.tasks[e.task];
        t.name = text, t.device = e.device, t.group = e.other, t.made = e.at;
        break;
      }
      case Kind::after: all_.tasks[e.task].after.push_back({e.other, e.order_only}); break;
      case Kind::begins:
        all_.tasks[e.task].begun = e.at, all_.tasks[e.task].device = e.device;
        all_.tasks[e.task].thread = thread_;
        open(Span::What::task, e);
        break;
      case Kind::function_returned:
        all_.tasks[e.task].went_on = true;
        returns(e);
        break;
      case Kind::ends: {
        TracedTask& t = all_.tasks[e.task];
        t.ended = e.at, t.state = e.state;
        if (!open_.empty() && open_.back().what == Span::What::task && open_.back().task == e.task) returns(e);
        break;
      }
      case Kind::wait_begins: open(Span::What::wait, e).task = e.other; break;
      case Kind::copy_begins: {
        Span& s = open(Span::What::copy, e);
        s.from = e.device, s.bytes = e.other;
        break;
      }
      case Kind::launch_begins: open(Span::What::launch, e).text = text; break;
      case Kind::wait_ends: close(Span::What::wait, e.at); break;
      case Kind::copy_ends:
        if (!open_.empty()) open_.back().to = e.device;
        close(Span::What::copy, e.at);
        break;
      case Kind::sends:
      case Kind::receives: all_.tasks[e.task].message = {e.kind == Kind::sends, e.peer, e.other}; break;
      case Kind::launch_ends: close(Span::What::launch, e.at); break;
    }
  }
  void end() {
    while (!open_.empty()) {
      open_.back().open = true;
      close(open_.back().what, all_.until);
    }
  }

 private:
  Span& open(Span::What what, const Event& e) {
    Span& s = open_.emplace_back();
    s.what = what, s.thread = thread_, s.begin = e.at, s.task = e.task;
    within_.push_back(0), apart_.push_back(0);
    return s;
  }
  void returns(const Event& e) {
    all_.tasks[e.task].returned = e.at;
    close(Span::What::task, e.at);
  }
  /// Does nothing if the span began before the recording.
  void close(Span::What what, std::int64_t at) {
    if (open_.empty() || open_.back().what != what) return;
    Span& s = open_.back();
    s.end = at;
    const std::int64_t length = s.end - s.begin;
    s.self = length - within_.back();
    if (what == Span::What::task) all_.tasks[s.task].worked = length - apart_.back();
    all_.spans.push_back(std::move(s));
    const std::int64_t apart = what == Span::What::launch ? apart_.back() : length;
    open_.pop_back(), within_.pop_back(), apart_.pop_back();
    if (open_.empty()) return;
    within_.back() += length, apart_.back() += apart;
  }

  Timeline& all_;
  const int thread_;
  std::vector<Span> open_;
  std::vector<std::int64_t> within_,
      apart_;  // for each open span: total time of nested spans, and of nested spans other than launches
};

}  // namespace

Timeline timeline_of(const RecordedEvents& recorded) {
  Timeline all;
  all.until = now();
  for (const auto& log : recorded.logs) {
    Reader reader(all, static_cast<int>(all.threads.size()));
    all.threads.push_back(log->thread);
    log->for_each([&](const Event& e, std::string_view text) {
      if (e.at <= all.until) reader.read(e, text);
    });
    reader.end();
  }
  // Tasks that were created before the recording, or after the memory limit was reached, only occur in other events.
  std::erase_if(all.tasks, [](const auto& entry) { return entry.second.made == 0; });
  std::erase_if(all.spans, [&](const Span& s) { return s.what == Span::What::task && !all.tasks.contains(s.task); });
  for (auto& [number, t] : all.tasks) {
    all.order.push_back(number);
    if (t.begun != 0 && t.ended == 0) t.state = State::running;
    if (t.message && t.ended != 0) t.worked = t.ended - t.begun;
  }
  std::ranges::sort(all.order);
  // The times assume that a device executes one task at a time.
  std::vector<TracedTask*> went_on;
  for (auto& [number, t] : all.tasks)
    if (t.went_on && !t.message) went_on.push_back(&t);
  std::ranges::sort(went_on, {}, [&](const TracedTask* t) { return t->ended != 0 ? t->ended : all.until; });
  std::map<Device, std::int64_t> free;
  for (TracedTask* t : went_on) {
    std::int64_t& since = free[t->device];
    const std::int64_t end = t->ended != 0 ? t->ended : all.until;
    t->device_begun = std::min(end, std::max(since, t->begun));
    t->worked = end - t->device_begun;
    since = end;
  }
  return all;
}

}  // namespace tessera::detail::tracing
