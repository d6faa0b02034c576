// SPDX-License-Identifier: Apache-2.0
// Statistics of traced tasks.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "tessera/base/config.h"
#include "tessera/task/timeline.h"
#include "tessera/task/trace.h"

namespace tessera {

namespace {

std::vector<RankTraffic> traffic_of(const detail::tracing::Timeline& all) {
  std::map<int, RankTraffic> ranks;
  std::map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> expected;  // when receives began and ended
  for (const auto& [number, t] : all.tasks) {
    if (!t.message) continue;
    RankTraffic& r = ranks[t.message->peer];
    r.rank = t.message->peer;
    if (!t.message->sends && t.begun != 0) expected[r.rank].emplace_back(t.begun, t.ended != 0 ? t.ended : all.until);
    if (t.state != detail::tracing::State::ended) continue;
    (t.message->sends ? r.sent : r.received) += 1;
    (t.message->sends ? r.sent_bytes : r.received_bytes) += t.message->bytes;
  }
  for (auto& [rank, spans] : expected) {
    std::ranges::sort(spans);
    std::int64_t total = 0, until = 0;
    for (const auto& [begin, end] : spans) {
      if (end > until) total += end - std::max(begin, until);
      until = std::max(until, end);
    }
    ranks[rank].waited = double(total) * 1e-9;
  }
  std::vector<RankTraffic> sorted;
  for (const auto& [rank, r] : ranks) sorted.push_back(r);
  return sorted;
}

}  // namespace

TaskSummary summary() {
  using namespace detail::tracing;
  const RecordedEvents recorded = recorded_events("summary");
  const Timeline all = timeline_of(recorded);
  TaskSummary s;
  s.dropped = recorded.dropped;
  s.ranks = traffic_of(all);
  std::map<std::pair<std::string, Device>, TaskTimes> times;
  for (const auto& [number, t] : all.tasks) {
    if (t.message) continue;
    ++s.made;
    switch (t.state) {
      case State::not_begun: ++s.not_begun; continue;
      case State::running: ++s.running; continue;
      case State::failed: ++s.failed; break;
      case State::skipped: ++s.skipped; break;
      case State::cancelled: ++s.cancelled; break;
      case State::ended: break;
    }
    ++s.ended;
    if (t.state != State::ended) continue;
    TaskTimes& of = times[{t.name, t.device}];
    const double seconds = double(t.worked) * 1e-9;
    of.min = of.count == 0 ? seconds : std::min(of.min, seconds);
    of.max = std::max(of.max, seconds);
    of.total += seconds;
    ++of.count;
  }
  for (auto& [key, of] : times) {
    of.name = key.first, of.device = key.second, of.mean = of.total / double(of.count);
    s.times.push_back(std::move(of));
  }
  std::ranges::stable_sort(s.times, std::ranges::greater(), &TaskTimes::total);
  for (const Span& span : all.spans)
    if (span.what == Span::What::wait) s.waited += double(span.self) * 1e-9;
  const TaskCopies now = task_copies(), before = *recorded.copies;
  s.copies = {now.fetched - before.fetched,
              now.written_back - before.written_back,
              now.evicted - before.evicted,
              now.fetched_bytes - before.fetched_bytes,
              now.written_back_bytes - before.written_back_bytes,
              now.evicted_bytes - before.evicted_bytes};
  return s;
}

std::string to_string(const TaskSummary& s) {
  const auto time = [](double seconds) {
    return seconds < 1e-3 ? fmt::format("{:.2f} us", seconds * 1e6)
           : seconds < 1  ? fmt::format("{:.2f} ms", seconds * 1e3)
                          : fmt::format("{:.2f} s", seconds);
  };
  std::string text = fmt::format("{} tasks: {} ended", s.made, s.ended);
  for (const auto& [count, what] :
       {std::pair(s.failed, "failed"), std::pair(s.skipped, "skipped"), std::pair(s.cancelled, "cancelled")})
    if (count != 0) text += fmt::format(" ({} {})", count, what);
  text += fmt::format(", {} running, {} not begun; {} waited\n", s.running, s.not_begun, time(s.waited));
  std::size_t wide = 4;
  for (const TaskTimes& t : s.times) wide = std::max(wide, std::min<std::size_t>(t.name.size(), 40));
  const auto line = [&](const std::string& name, const auto&... cells) {
    text += fmt::format("{:{}}  ", name.substr(0, wide), wide);
    text += fmt::format("{:10}  {:>9}  {:>10}  {:>10}  {:>10}  {:>10}\n", cells...);
  };
  if (!s.times.empty()) line("task", "device", "count", "mean", "min", "max", "total");
  for (const TaskTimes& t : s.times)
    line(t.name, to_string(t.device), t.count, time(t.mean), time(t.min), time(t.max), time(t.total));
  if (!s.ranks.empty())
    text += fmt::format("{:<6}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n", "rank", "sent", "bytes", "received", "bytes",
                        "waited");
  for (const RankTraffic& r : s.ranks)
    text += fmt::format("{:<6}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n", r.rank, r.sent,
                        config::format_bytes(r.sent_bytes), r.received, config::format_bytes(r.received_bytes),
                        time(r.waited));
  text += fmt::format("copies: {} fetched ({}), {} written back ({}), {} evicted ({})\n", s.copies.fetched,
                      config::format_bytes(s.copies.fetched_bytes), s.copies.written_back,
                      config::format_bytes(s.copies.written_back_bytes), s.copies.evicted,
                      config::format_bytes(s.copies.evicted_bytes));
  if (s.dropped != 0) text += fmt::format("{} events were dropped because the trace memory was full\n", s.dropped);
  return text;
}

}  // namespace tessera
