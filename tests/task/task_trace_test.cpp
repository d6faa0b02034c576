// SPDX-License-Identifier: Apache-2.0
// Traces, graphs of regions, and statistics. watchdog_test.cpp tests the watchdog and traces of whole programs.
#include "tessera/task/trace.h"
#include "tessera/task/trace_hooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tessera/kernel/kernel.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/trace_json.h"
#include "tests/executor/nodes.h"
#include "tests/support/errors.h"
#include "tests/task/trace_events.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using namespace test;

// Creates an array on cpu:0, even if another device is current.
Array filled(std::int64_t elements, float value) {
  const DeviceScope here{Device{}};
  Array a = Array::full({elements}, value).copy();
  a.eval();
  return a;
}

TEST(Trace, ContainsTasksWithNamesAndDependencies) {
  const Trace seen = trace();
  const Task<int> one = spawn({.name = "one"}, [] { return 1; });
  one.wait();  // it has ended when the next task is created, but there must still be an arrow
  const Task<int> two = spawn(
      {.name = "two \"quoted\"\n"}, [](int x) { return x + 1; }, one);
  Array a = filled(100, 0);
  Region r;
  r.spawn(
      {.name = "write"}, [](Array& x) { x += 1; }, inout(a));
  r.spawn(
      {.name = "read"}, [](const Array& x) { sum(x).item<float>(); }, in(a));
  r.spawn(
      {.name = "write again"}, [](Array& x) { x += 1; }, out(a));
  const auto at = std::source_location::current();
  spawn([] {}).wait();
  r.wait();
  EXPECT_EQ(two.fetch(), 2);
  const auto events = checked(seen.json());
  EXPECT_TRUE(arrow(events, named(events, "one"), named(events, "two \"quoted\"\n"), "data"));
  EXPECT_TRUE(arrow(events, named(events, "write"), named(events, "read"), "data"));
  EXPECT_TRUE(arrow(events, named(events, "read"), named(events, "write again"), "order"));
  EXPECT_FALSE(arrow(events, named(events, "one"), named(events, "read")));
  EXPECT_EQ(named(events, "write").at("args").at("state"), "ended");
  EXPECT_EQ(named(events, "write").at("args").at("device"), "cpu:0");
  named(events, "task_trace_test.cpp:" + std::to_string(at.line() + 1));
  EXPECT_EQ(of_kind(events, "task").size(), 6u);
}

TEST(Trace, ContainsWaitsKernelsAndCopies) {
  const auto twice = kernel("twice", [](Buffer<const float> x, Buffer<float> y) {
    const auto i = global_id();
    y[i] = 2.0f * x[i];
  });
  Array x = filled(1000, 1), y = filled(1000, 0);
  const Trace seen = trace();
  Region r;
  r.spawn({.name = "launch"}, twice, Extent{1000}, x, y);
  r.spawn(
      {.scope = Device{Backend::interp, 0}, .name = "elsewhere"}, [](Array& v) { v += 1; }, inout(y));
  r.spawn({.name = "outer"}, [] { spawn({.name = "inner"}, [] {}).wait(); });
  r.wait();
  EXPECT_EQ(y.to_vector<float>()[7], 3);
  const auto events = checked(seen.json());
  const auto within = [](const json& inner, const json& outer) {
    return inner.at("tid") == outer.at("tid") && inner.at("ts") >= outer.at("ts") &&
           inner.at("ts").get<double>() + inner.at("dur").get<double>() <=
               outer.at("ts").get<double>() + outer.at("dur").get<double>() + 1e-3;
  };
  const auto kernels = of_kind(events, "kernel"), copies = of_kind(events, "copy"), waits = of_kind(events, "wait");
  EXPECT_TRUE(std::ranges::any_of(
      kernels, [&](const json& e) { return e.at("name") == "twice" && within(e, named(events, "launch")); }));
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].at("args").at("bytes"), 4000);
  EXPECT_TRUE(std::ranges::any_of(copies, [&](const json& e) {
    return e.at("name") == "copy cpu:0 to interp:0" && within(e, named(events, "elsewhere"));
  }));
  EXPECT_TRUE(std::ranges::any_of(copies, [](const json& e) { return e.at("name") == "copy interp:0 to cpu:0"; }));
  const json inner = named(events, "inner");
  // If another thread ran the task and it ended before the wait began, there is no wait event.
  for (const json& e : waits)
    if (e.at("name") == "wait for inner") {
      EXPECT_TRUE(within(e, named(events, "outer")));
    }
}

TEST(Trace, ContainsDeviceCopiesInRowOfDevice) {
  if (!can_compute(Backend::opencl)) GTEST_SKIP() << "no OpenCL";
  Array x = filled(1000, 1);
  const Trace seen = trace();
  Region r({.scope = opencl(0)});
  for (int i = 0; i < 2; ++i) r.spawn([](Array& v) { v += 1; }, inout(x));
  r.wait();
  EXPECT_EQ(x.to_vector<float>()[0], 3);
  std::map<int, std::vector<json>> copies;
  int device = 0;
  for (const json& e : checked(seen.json())) {
    if (e.at("ph") == "M" && e.at("name") == "process_name" && e.at("args").at("name") == "opencl:0")
      device = e.at("pid");
    if (e.at("ph") == "b" || e.at("ph") == "e") copies[e.at("pid")].push_back(e);
  }
  ASSERT_EQ(copies.size(), 1u);
  const auto& all = copies.at(device);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(std::ranges::count_if(all, [](const json& e) { return e.at("name") == "copy cpu:0 to opencl:0"; }), 2);
  EXPECT_EQ(std::ranges::count_if(all, [](const json& e) { return e.at("name") == "copy opencl:0 to cpu:0"; }), 2);
  EXPECT_EQ(all[0].at("id"), all[1].at("id"));
}

TEST(Trace, IsWrittenWhenStopped) {
  const auto path = file_of("stops.json");
  {
    Trace seen = trace(path);
    spawn({.name = "a"}, [] {}).wait();
    seen.stop();
    spawn({.name = "late"}, [] {}).wait();
    seen.stop();
    expect_contains(text_of<ArgumentError>([&] { seen.json(); }), {"stopped"});
  }
  const auto events = checked(content_of(path));
  named(events, "a");
  EXPECT_EQ(of_kind(events, "task").size(), 1u);
  {
    const Trace outer = trace();
    spawn({.name = "before"}, [] {}).wait();
    const Trace inner = trace(path);  // written by the destructor
    spawn({.name = "in both"}, [] {}).wait();
    EXPECT_EQ(of_kind(checked(outer.json()), "task").size(), 2u);
    EXPECT_EQ(of_kind(checked(inner.json()), "task").size(), 1u);
  }
  named(checked(content_of(path)), "in both");
  std::filesystem::remove(path);
}

TEST(Trace, UnwritableFileThrowsImmediately) {
  for (const char* path : {"/no/such/folder/trace.json", "/", ""})
    expect_contains(text_of<ArgumentError>([&] { static_cast<void>(trace(path)); }),
                    {"trace", "cannot be written", path});
  expect_contains(text_of<ArgumentError>([] { summary(); }), {"summary", "trace()"});  // no trace is active
}

TEST(Trace, ContainsUnfinishedTasks) {
  const Trace seen = trace();
  std::atomic<bool> go = false, begun = false;
  Region r;
  r.spawn({.name = "runs on"}, [&] {
    begun = true;
    spin_until(go);
  });
  Array x = filled(1, 0);
  r.spawn(
      {.name = "boom"}, [](Array&) { throw std::runtime_error("boom"); }, inout(x));
  r.spawn(
      {.name = "skipped"}, [](const Array&) {}, in(x));
  spin_until(begun);
  const auto events = checked(seen.json());
  EXPECT_EQ(named(events, "runs on").at("args").at("state"), "running");
  go = true;
  EXPECT_THROW(r.wait(), TaskError);
  const auto later = checked(seen.json());
  EXPECT_EQ(named(later, "boom").at("args").at("state"), "failed");
  EXPECT_EQ(named(later, "runs on").at("args").at("state"), "ended");
  EXPECT_TRUE(std::ranges::none_of(of_kind(later, "task"), [](const json& e) { return e.at("name") == "skipped"; }));
}

TEST(Trace, IsConsistentWhileManyThreadsWrite) {
  const Trace seen = trace();
  std::atomic<bool> go = true;
  std::jthread reader([&] {
    while (go) checked(seen.json());
  });
  for (int i = 0; i < 2000; ++i) spawn({.name = "many"}, [] { spawn({.name = "more"}, [] {}); });
  synchronize();
  go = false;
  reader.join();
  EXPECT_EQ(of_kind(checked(seen.json()), "task").size(), 4000u);
}

TEST(Trace, DropsEventsWhenMemoryIsFull) {
  std::atomic<std::int64_t> room = 200'000;  // sufficient for three chunks of 64 KiB
  detail::tracing::Log log("thread");
  int kept = 0, asked = 0;
  for (; asked < 10'000; ++asked) kept += log.add({.kind = detail::tracing::Kind::made, .task = 1}, "a name", room);
  EXPECT_GT(kept, 3000);
  EXPECT_LT(kept, 5000);
  int read = 0;
  log.for_each([&](const detail::tracing::Event& e, std::string_view text) {
    EXPECT_EQ(e.task, 1u);
    EXPECT_EQ(text, "a name");
    ++read;
  });
  EXPECT_EQ(read, kept);
}

// --- Graphs and statistics

TEST(Dot, ContainsTasksOfRegionAndDependencies) {
  const Trace seen = trace();
  Array a = filled(1, 0), b = filled(1, 0);
  std::atomic<bool> go = false;
  std::string text;
  {
    Region before;
    before.spawn(
        {.name = "another region's"}, [](Array& x) { x += 1; }, inout(b));
  }
  Region r;
  r.spawn(
      {.name = "first \"one\""},
      [&](Array& x) {
        spin_until(go);
        x += 1;
      },
      inout(a));
  const auto second = r.spawn(
      {.name = "second"}, [](const Array&, Array&) {}, in(a), inout(b));
  r.spawn(
      {.name = "third"}, [](Array&) {}, out(a));
  text = dot(r);
  go = true;
  r.wait();
  EXPECT_EQ(text.substr(0, 15), "digraph region ");
  expect_contains(text, {"first \\\"one\\\"\\ncpu:0", "second\\ncpu:0, not begun", "style=dotted", "another region's"});
  const auto number_of = [](const std::string& of, const std::string& name) {
    const std::size_t at = of.find("label=\"" + name);
    EXPECT_NE(at, of.npos) << name;
    const std::size_t line = of.rfind('\n', at) + 1;
    return of.substr(line + 2, of.find(' ', line + 2) - line - 2);
  };
  const auto edge = [&](const std::string& of, const std::string& from, const std::string& to) {
    return of.find("  " + number_of(of, from) + " -> " + number_of(of, to)) != of.npos;
  };
  EXPECT_TRUE(edge(text, "first", "second"));
  EXPECT_TRUE(edge(text, "second", "third"));
  EXPECT_TRUE(edge(text, "another", "second"));
  EXPECT_FALSE(edge(text, "another", "third"));
  EXPECT_FALSE(edge(text, "second", "first"));
  expect_contains(dot(r), {"second\\ncpu:0, ended, ", "third\\ncpu:0, ended, "});
  EXPECT_EQ(std::ranges::count(text, '{'), std::ranges::count(text, '}'));
}

TEST(Dot, ThrowsIfNoTraceIsActive) {
  Region r;
  expect_contains(text_of<ArgumentError>([&] { dot(r); }), {"dot", "no trace is active", "auto seen = trace();"});
  const Trace seen = trace();
  EXPECT_EQ(dot(r).find("label"), std::string::npos);
  r.spawn({.name = "later"}, [] {});  // the region existed before the trace
  expect_contains(dot(r), {"later\\ncpu:0"});
}

TEST(Summary, CountsTasksTimesCopiesAndWaits) {
  Array x = filled(1000, 1);
  const Trace seen = trace();
  Region r;
  for (int i = 0; i < 10; ++i) r.spawn({.name = "sleep"}, [] { std::this_thread::sleep_for(2ms); });
  for (int i = 0; i < 3; ++i)
    r.spawn(
        {.scope = Device{Backend::interp, 0}, .name = "remote"}, [](Array& v) { v += 1; }, inout(x));
  // The time in which a task waits for others is not included in its duration.
  r.spawn({.name = "waits"}, [] {
    std::atomic<bool> begun = false;
    const Task<void> slow = spawn({.name = "slow"}, [&] {
      begun = true;
      std::this_thread::sleep_for(50ms);
    });
    slow.wait();
  });
  r.wait();
  EXPECT_EQ(x.to_vector<float>()[0], 4);
  const Task<int> bad = spawn({.name = "bad"}, []() -> int { throw std::runtime_error("bad"); });
  const Task<int> after = bad.then([](int i) { return i; });
  EXPECT_THROW(after.wait(), TaskError);
  const TaskSummary s = summary();
  EXPECT_EQ(s.made, 17u);
  EXPECT_EQ(s.ended, 17u);
  EXPECT_EQ(s.failed, 1u);
  EXPECT_EQ(s.skipped, 1u);
  EXPECT_EQ(s.cancelled + s.running + s.not_begun + s.dropped, 0u);
  EXPECT_EQ(s.copies.fetched, 1u);
  EXPECT_EQ(s.copies.fetched_bytes, 4000u);
  EXPECT_EQ(s.copies.written_back, 1u);
  const auto of = [&](const std::string& name) {
    const auto at = std::ranges::find(s.times, name, &TaskTimes::name);
    EXPECT_NE(at, s.times.end()) << name;
    return at == s.times.end() ? TaskTimes{} : *at;
  };
  EXPECT_EQ(of("sleep").count, 10u);
  EXPECT_GE(of("sleep").min, 0.002);
  EXPECT_GE(of("sleep").max, of("sleep").mean);
  EXPECT_GE(of("sleep").mean, of("sleep").min);
  EXPECT_NEAR(of("sleep").total, 10 * of("sleep").mean, 1e-9);
  EXPECT_EQ(of("remote").count, 3u);
  EXPECT_EQ(of("remote").device, (Device{Backend::interp, 0}));
  EXPECT_GE(of("slow").total, 0.05);
  EXPECT_LT(of("waits").total, of("slow").total);
  EXPECT_GE(s.waited, 0);
  EXPECT_EQ(s.times.front().name, "slow");
  expect_contains(to_string(s),
                  {"17 tasks: 17 ended (1 failed) (1 skipped)", "sleep", "interp:0", "1 fetched (3.91 KiB)"});
}

}  // namespace
/// The times of another machine are converted to the clock of rank 0, which drifts apart from its own.
TEST(Trace, EventsOfOtherClocksNest) {
  using detail::TraceAccess;
  Trace seen;
  Region r;
  for (int i = 0; i < 4; ++i) r.spawn({.name = "outer"}, [] { spawn({.name = "inner"}, [] {}).wait(); });
  r.wait();
  detail::tracing::RankOfTrace rank{.rank = 2, .name = "rank 2"};
  const std::int64_t begin = TraceAccess::since(seen), end = detail::tracing::now();
  rank.first = {begin, 5'000'000'000}, rank.last = {end, 5'000'000'000 - (end - begin) / 3};
  rank.origin = begin + 5'000'000'000;
  std::string text = detail::tracing::begin_of_trace();
  TraceAccess::write(seen, TraceAccess::events(), rank, [&](std::string_view more) { text += more; });
  const std::vector<json> events = checked(text + detail::tracing::end_of_trace(0));
  double last = 0;
  for (const json& e : of_kind(events, "task")) {
    EXPECT_EQ(e.at("pid"), 2001);
    last = std::max(last, e.at("ts").get<double>() + e.at("dur").get<double>());
  }
  EXPECT_GT(last, 0);
  EXPECT_LE(last * 1000, static_cast<double>(end - begin) * 2 / 3 + 1000);
}

}  // namespace tessera
