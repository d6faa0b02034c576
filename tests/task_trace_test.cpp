// SPDX-License-Identifier: Apache-2.0
// Seeing what tasks do: traces, graphs of regions, figures, the watchdog.
#include "tessera/task/trace.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tessera/kernel/kernel.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/fresh_process.h"
#include "tests/support/nodes.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::expect_has;
using test::in_fresh_process;
using test::spin_until;
using test::text_of;

std::filesystem::path file_of(const std::string& name) {
  return std::filesystem::temp_directory_path() / ("task_trace_test_" + std::to_string(::getpid()) + "_" + name);
}
std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The trace's events, once it is sure that they are as viewers want them: in each row complete events nest, and each
/// arrow has two ends, each within an event of its row.
std::vector<json> checked(const std::string& text) {
  const json all = json::parse(text);
  std::vector<json> events = all.at("traceEvents");
  struct Row {
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;  // nanoseconds
    bool named = false;
  };
  const auto ns = [](const json& e, const char* field) {
    return static_cast<std::int64_t>(std::llround(e.at(field).get<double>() * 1000));
  };
  std::map<std::pair<int, int>, Row> rows;
  std::map<int, std::pair<std::vector<json>, std::vector<json>>> arrows;
  for (const json& e : events) {
    const std::string kind = e.at("ph");
    if (kind == "M" && e.at("name") == "thread_name") rows[{e.at("pid"), e.at("tid")}].named = true;
    if (kind == "X") {
      EXPECT_GE(ns(e, "ts"), 0) << e;
      EXPECT_GE(ns(e, "dur"), 0) << e;
      rows[{e.at("pid"), e.at("tid")}].spans.emplace_back(ns(e, "ts"), ns(e, "ts") + ns(e, "dur"));
    }
    if (kind == "s") arrows[e.at("id")].first.push_back(e);
    if (kind == "f") arrows[e.at("id")].second.push_back(e);
  }
  for (auto& [where, row] : rows) {
    EXPECT_TRUE(row.named) << where.first << " " << where.second;
    std::ranges::sort(row.spans, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<std::int64_t> open;
    for (const auto& [begin, end] : row.spans) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty()) EXPECT_LE(end, open.back()) << "they do not nest";
      open.push_back(end);
    }
  }
  for (const auto& [id, ends] : arrows) {
    EXPECT_EQ(ends.first.size(), 1u);
    EXPECT_EQ(ends.second.size(), 1u);
    for (const auto* end : {&ends.first.at(0), &ends.second.at(0)}) {
      const Row& row = rows[{end->at("pid"), end->at("tid")}];
      const std::int64_t at = ns(*end, "ts");
      EXPECT_TRUE(std::ranges::any_of(row.spans, [&](const auto& s) { return s.first <= at && at <= s.second; }))
          << *end;
    }
  }
  return events;
}

std::vector<json> of_kind(const std::vector<json>& events, const char* category) {
  std::vector<json> some;
  for (const json& e : events)
    if (e.at("ph") == "X" && e.at("cat") == category) some.push_back(e);
  return some;
}
/// The only task of that name.
json named(const std::vector<json>& events, const std::string& name) {
  json found;
  int count = 0;
  for (const json& e : of_kind(events, "task"))
    if (e.at("name") == name) found = e, ++count;
  EXPECT_EQ(count, 1) << name;
  return found;
}
/// Whether an arrow goes from the end of one to the begin of the other.
bool arrow(const std::vector<json>& events, const json& from, const json& to, const char* name = nullptr) {
  std::set<int> begun;
  for (const json& e : events)
    if (e.at("ph") == "s" && e.at("pid") == from.at("pid") && e.at("tid") == from.at("tid") &&
        std::abs(e.at("ts").get<double>() - from.at("ts").get<double>() - from.at("dur").get<double>()) < 0.0025)
      begun.insert(e.at("id").get<int>());
  return std::ranges::any_of(events, [&](const json& e) {
    return e.at("ph") == "f" && e.at("bp") == "e" && begun.contains(e.at("id").get<int>()) &&
           e.at("pid") == to.at("pid") && e.at("tid") == to.at("tid") && e.at("ts") == to.at("ts") &&
           (name == nullptr || e.at("name") == name);
  });
}

TEST(Trace, HasTasksWithTheirNamesAndArrowsFromWhatTheyComeAfter) {
  const Trace seen = trace();
  const Task<int> one = spawn({.name = "one"}, [] { return 1; });
  one.wait();  // it has ended when the next is made: the arrow is there all the same
  const Task<int> two = spawn(
      {.name = "two \"quoted\"\n"}, [](int x) { return x + 1; }, one);
  Array a = Array::zeros({100}).copy();
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

TEST(Trace, HasWaitsKernelsAndCopies) {
  const auto twice = kernel("twice", [](Buffer<const float> x, Buffer<float> y) {
    const auto i = global_id();
    y[i] = 2.0f * x[i];
  });
  Array x = Array::ones({1000}).copy(), y = Array::zeros({1000}).copy();
  x.eval(), y.eval();
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
  // Where another thread was quicker to run it, and it had ended before the wait, there is none.
  for (const json& e : waits)
    if (e.at("name") == "wait for inner") EXPECT_TRUE(within(e, named(events, "outer")));
}

TEST(Trace, HasARowForADeviceThatWorksByItself) {
  in_fresh_process([] {
    auto& driver = test::add(Backend::cuda, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
    const Device gpu{Backend::cuda, 0};
    const BufferView view{Storage::allocate(gpu, 4096), 0, 1024, DType::f32};
    const auto fill = [view] { this_task::queue().fill(view, 7); };
    const Trace seen = trace();
    driver.behaviour(0)->hold();
    const Task<void> first = spawn({.scope = gpu, .name = "first"}, fill);
    const Task<void> second = spawn({.scope = gpu, .name = "second"}, fill, first);
    const Task<void> beside = spawn({.scope = gpu, .name = "beside"}, fill);
    std::this_thread::sleep_for(20ms);
    driver.behaviour(0)->let_go();
    second.wait(), beside.wait();
    const auto events = checked(seen.json());  // what the device does does not overlap
    int device = 0;
    for (const json& e : events)
      if (e.at("ph") == "M" && e.at("name") == "process_name" && e.at("args").at("name") == "cuda:0")
        device = e.at("pid");
    EXPECT_GT(device, 1);
    std::map<std::string, json> there, here;
    for (const json& e : of_kind(events, "task")) (e.at("pid") == device ? there : here)[e.at("name")] = e;
    EXPECT_TRUE(there.contains("first") && here.contains("first") && here.contains("second"));
    EXPECT_GT(there["first"].at("dur").get<double>(), here["first"].at("dur").get<double>());
    EXPECT_TRUE(arrow(events, there["first"], here["second"]));
    const TaskSummary s = summary();
    EXPECT_EQ(s.ended, 3u);
    EXPECT_GE(std::ranges::find(s.times, "first", &TaskTimes::name)->total, 0.015);  // it was held for 20 ms
  });
}

TEST(Trace, HasCopiesToADeviceInItsRow) {
  if (!can_compute(Backend::opencl)) GTEST_SKIP() << "no OpenCL";
  Array x = Array::ones({1000}).copy();
  x.eval();
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

TEST(Trace, IsAFileWhenItStops) {
  const auto path = file_of("stops.json");
  {
    Trace seen = trace(path);
    spawn({.name = "a"}, [] {}).wait();
    seen.stop();
    spawn({.name = "late"}, [] {}).wait();
    seen.stop();
    expect_has(text_of<ArgumentError>([&] { seen.json(); }), {"stopped"});
  }
  const auto events = checked(content_of(path));
  named(events, "a");
  EXPECT_EQ(of_kind(events, "task").size(), 1u);
  {
    const Trace outer = trace();
    spawn({.name = "before"}, [] {}).wait();
    const Trace inner = trace(path);  // written by its end
    spawn({.name = "in both"}, [] {}).wait();
    EXPECT_EQ(of_kind(checked(outer.json()), "task").size(), 2u);
    EXPECT_EQ(of_kind(checked(inner.json()), "task").size(), 1u);
  }
  named(checked(content_of(path)), "in both");
  std::filesystem::remove(path);
}

TEST(Trace, OfAFileThatCannotBeWrittenIsAnErrorAtTheCall) {
  for (const char* path : {"/no/such/folder/trace.json", "/", ""})
    expect_has(text_of<ArgumentError>([&] { static_cast<void>(trace(path)); }), {"trace", "cannot be written", path});
  expect_has(text_of<ArgumentError>([] { summary(); }), {"summary", "trace()"});  // none of them is under way
}

TEST(Trace, HasWhatHasNotEnded) {
  const Trace seen = trace();
  std::atomic<bool> go = false, begun = false;
  Region r;
  r.spawn({.name = "runs on"}, [&] {
    begun = true;
    spin_until(go);
  });
  Array x = Array::zeros({1}).copy();
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

TEST(Trace, IsWholeWhileManyThreadsWrite) {
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

TEST(Trace, LeavesOutForWhatThereIsNoRoom) {
  std::atomic<std::int64_t> room = 200'000;  // three pieces of 64 KiB
  detail::seeing::Log log("thread");
  int kept = 0, asked = 0;
  for (; asked < 10'000; ++asked) kept += log.add({.kind = detail::seeing::Kind::made, .task = 1}, "a name", room);
  EXPECT_GT(kept, 3000);
  EXPECT_LT(kept, 5000);
  int read = 0;
  log.for_each([&](const detail::seeing::Event& e, std::string_view text) {
    EXPECT_EQ(e.task, 1u);
    EXPECT_EQ(text, "a name");
    ++read;
  });
  EXPECT_EQ(read, kept);
}

// --- Graphs and figures
// ------------------------------------------------------------------------------------------------

TEST(Dot, HasTheTasksOfARegionAndWhatTheyComeAfter) {
  const Trace seen = trace();
  Array a = Array::zeros({1}).copy(), b = Array::zeros({1}).copy();
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
  expect_has(text, {"first \\\"one\\\"\\ncpu:0", "second\\ncpu:0, not begun", "style=dotted", "another region's"});
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
  expect_has(dot(r), {"second\\ncpu:0, ended, ", "third\\ncpu:0, ended, "});
  EXPECT_EQ(std::ranges::count(text, '{'), std::ranges::count(text, '}'));
}

TEST(Dot, WithoutATraceSaysHowToHaveOne) {
  Region r;
  expect_has(text_of<ArgumentError>([&] { dot(r); }), {"dot", "nothing is recorded", "auto seen = trace();"});
  const Trace seen = trace();
  EXPECT_EQ(dot(r).find("label"), std::string::npos);
  r.spawn({.name = "later"}, [] {});  // of a region that was there before
  expect_has(dot(r), {"later\\ncpu:0"});
}

TEST(Summary, CountsTasksTimesCopiesAndWaits) {
  Array x = Array::ones({1000}).copy();
  x.eval();
  const Trace seen = trace();
  Region r;
  for (int i = 0; i < 10; ++i) r.spawn({.name = "sleep"}, [] { std::this_thread::sleep_for(2ms); });
  for (int i = 0; i < 3; ++i)
    r.spawn(
        {.scope = Device{Backend::interp, 0}, .name = "remote"}, [](Array& v) { v += 1; }, inout(x));
  // A task that waits has not worked meanwhile.
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
  EXPECT_EQ(s.cancelled + s.running + s.not_begun + s.left_out, 0u);
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
  expect_has(to_string(s), {"17 tasks: 17 ended (1 failed) (1 skipped)", "sleep", "interp:0", "1 fetched (3.91 KiB)"});
}

// --- By the environment, and at the end of a program
// -------------------------------------------------------------------

/// What a child that does `body` and exits wrote to standard error.
std::string errors_of(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  ::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    ::close(ends[0]), ::close(ends[1]);
    ::alarm(60);
    body();
    std::exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char some[256];
  for (ssize_t n = 0; (n = ::read(ends[0], some, sizeof some)) > 0;) text.append(some, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  return text;
}

TEST(Trace, IsWrittenWhenTheProgramEnds) {
  for (const bool by_environment : {true, false}) {
    const auto path = file_of("exit.json");
    const std::string said = errors_of([&] {
      if (by_environment) ::setenv("TESSERA_TASK_TRACE", path.c_str(), 1);
      static std::optional<Trace> kept;
      if (!by_environment) kept.emplace(path);
      spawn({.name = "parent's"}, [] {}).wait();
      in_fresh_process([] {
        spawn({.name = "child's"}, [] {}).wait();
        EXPECT_THROW(summary(), ArgumentError);  // the parent's trace is none of the child's
        const Trace own = trace();
        spawn({.name = "child's"}, [] {}).wait();
        EXPECT_EQ(of_kind(checked(own.json()), "task").size(), 1u);
      });
      spawn({.name = "still runs"}, [] { std::this_thread::sleep_for(50ms); });
    });
    EXPECT_EQ(said, "");
    const auto events = checked(content_of(path));
    named(events, "parent's");
    EXPECT_LE(of_kind(events, "task").size(), 2u);
    std::filesystem::remove(path);
  }
}

TEST(Trace, OfTheEnvironmentAndOneOfTheProgramAreBothWritten) {
  const auto of_all = file_of("all.json"), of_one = file_of("one.json");
  EXPECT_EQ(errors_of([&] {
              ::setenv("TESSERA_TASK_TRACE", of_all.c_str(), 1);
              {
                const Trace seen = trace(of_one);  // the first thing that anybody does
                spawn({.name = "one"}, [] {}).wait();
              }
              spawn({.name = "two"}, [] {}).wait();
            }),
            "");
  named(checked(content_of(of_all)), "one");
  named(checked(content_of(of_all)), "two");
  EXPECT_EQ(of_kind(checked(content_of(of_one)), "task").size(), 1u);
  std::filesystem::remove(of_all);
  std::filesystem::remove(of_one);
}

TEST(Trace, OfABadFileInTheEnvironmentIsAnErrorAtEachTask) {
  EXPECT_EQ(errors_of([] {
              ::setenv("TESSERA_TASK_TRACE", "/no/such/folder/trace.json", 1);
              for (int i = 0; i < 2; ++i)
                expect_has(text_of<ArgumentError>([] { spawn([] {}); }), {"trace", "/no/such/folder/trace.json"});
              if (::testing::Test::HasFailure()) ::_exit(1);
            }),
            "");
}

TEST(Watchdog, NamesWhatIsStuckAndWhatWaitsForIt) {
  const std::string said = errors_of([] {
    ::setenv("TESSERA_WATCHDOG", "0.3", 1);
    std::atomic<bool> go = false, begun = false;
    const Task<void> stuck = spawn({.name = "stuck\x1b[31m"}, [&] {
      begun = true;
      spin_until(go);
    });
    const Task<void> after = stuck.then([] {});
    const Task<void> last = spawn(
        {.name = "last"}, [] {}, after);
    spin_until(begun);
    Region r;
    std::atomic<bool> waits = false;
    r.spawn({.name = "asks"}, [&] {
      waits = true;
      after.wait();
    });
    const auto began = std::chrono::steady_clock::now();
    std::jthread frees([&] {
      std::this_thread::sleep_for(500ms);
      go = true;
    });
    last.wait();
    r.wait();
    std::fprintf(stderr, "after %f s", std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  });
  expect_has(said, {"warning: no task has ended for 0.3 s", "TESSERA_WATCHDOG=0.3", "stuck", "runs for",
                    "last (cpu:0) has not begun: it comes after task_trace_test.cpp:", ": it comes after stuck",
                    "waits for last"});
  EXPECT_EQ(said.find('\x1b'), said.npos);
  std::size_t warnings = 0;
  for (std::size_t at = 0; (at = said.find("no task has ended", at)) != said.npos; ++at) ++warnings;
  // One for each period at most, however slow the machine is.
  EXPECT_LE(static_cast<double>(warnings), std::max(1.0, std::atof(said.c_str() + said.rfind("after ") + 6) / 0.3))
      << said;
}

TEST(Watchdog, SaysNothingWhileTasksEndOrNoneIsThere) {
  EXPECT_EQ(errors_of([] {
              ::setenv("TESSERA_WATCHDOG", "1", 1);
              spawn([] {}).wait();
              std::this_thread::sleep_for(1100ms);
              Region r;
              for (int i = 0; i < 24; ++i) r.spawn([] { std::this_thread::sleep_for(100ms); });
              r.wait();
            }),
            "");
}

TEST(Watchdog, OfNoNumberIsAnErrorAtEachTask) {
  for (const char* value : {"soon", "0", "-1", "nan", "5s"})
    EXPECT_EQ(errors_of([&] {
                ::setenv("TESSERA_WATCHDOG", value, 1);
                for (int i = 0; i < 2; ++i)
                  expect_has(text_of<ArgumentError>([] { spawn([] {}); }), {"TESSERA_WATCHDOG", value});
                if (::testing::Test::HasFailure()) ::_exit(1);
              }),
              "");
}

}  // namespace
}  // namespace tessera

/// Tests fork on purpose while threads run.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
