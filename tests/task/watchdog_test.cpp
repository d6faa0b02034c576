// SPDX-License-Identifier: Apache-2.0
// Observation of whole programs: traces requested by environment variables or written at exit, and the watchdog. Each
// test runs in a child process that is forked before threads are created, as the thread sanitizer requires.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "tessera/task/synchronize.h"
#include "tessera/task/this_task.h"
#include "tessera/task/trace.h"
#include "tests/executor/nodes.h"
#include "tests/support/errors.h"
#include "tests/support/fresh_process.h"
#include "tests/support/run_in_child.h"
#include "tests/task/trace_events.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using namespace test;

TEST(Trace, ContainsRowForAsynchronousDevice) {
  in_fresh_process([] {
    auto& driver = test::add(Backend::cuda, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
    const Device gpu{Backend::cuda, 0};
    const BufferView view{Storage::allocate(gpu, 4096), 0, 1024, DType::f32};
    const auto fill = [view] { this_task::queue().fill(view, 7); };
    const Trace seen = trace();
    driver.behaviour(0)->hold();
    const Task<void> first = spawn({.scope = gpu, .name = "first"}, fill);
    const Task<void> second = spawn({.scope = gpu, .name = "second"}, fill, first);
    const Task<void> unrelated = spawn({.scope = gpu, .name = "unrelated"}, fill);
    std::this_thread::sleep_for(20ms);
    driver.behaviour(0)->resume();
    second.wait(), unrelated.wait();
    const auto events = checked(seen.json());  // checks that the device's events do not overlap
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
    EXPECT_GE(std::ranges::find(s.times, "first", &TaskTimes::name)->total, 0.015);  // the task was delayed by 20 ms
  });
}

// --- Environment variables and exit

/// Returns the standard error output of a child process that runs `body` and exits normally.
std::string errors_of(const std::function<void()>& body) {
  const auto [text, code] = test::errors_at_exit(body);
  EXPECT_EQ(code, 0) << text;
  return text;
}

TEST(Trace, IsWrittenAtExit) {
  for (const bool by_environment : {true, false}) {
    const auto path = file_of("exit.json");
    const std::string said = errors_of([&] {
      if (by_environment) ::setenv("TESSERA_TASK_TRACE", path.c_str(), 1);
      static std::optional<Trace> kept;
      if (!by_environment) kept.emplace(path);
      spawn({.name = "parent's"}, [] {}).wait();
      in_fresh_process([] {
        spawn({.name = "child's"}, [] {}).wait();
        EXPECT_THROW(summary(), ArgumentError);  // the parent's trace does not record the child process
        const Trace own = trace();
        spawn({.name = "child's"}, [] {}).wait();
        EXPECT_EQ(of_kind(checked(own.json()), "task").size(), 1u);
      });
      static std::atomic<bool> runs = false;  // a task that does not run would be reported
      spawn({.name = "still runs"}, [] { runs = true, std::this_thread::sleep_for(50ms); });
      while (!runs) std::this_thread::yield();
    });
    EXPECT_EQ(said, "");
    const auto events = checked(content_of(path));
    named(events, "parent's");
    EXPECT_LE(of_kind(events, "task").size(), 2u);
    std::filesystem::remove(path);
  }
}

TEST(Trace, EnvironmentAndProgramTracesAreBothWritten) {
  const auto of_all = file_of("all.json"), of_one = file_of("one.json");
  EXPECT_EQ(errors_of([&] {
              ::setenv("TESSERA_TASK_TRACE", of_all.c_str(), 1);
              {
                const Trace seen = trace(of_one);  // the first call of a library function
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

TEST(Trace, InvalidFileInEnvironmentThrowsForEachTask) {
  EXPECT_EQ(errors_of([] {
              ::setenv("TESSERA_TASK_TRACE", "/no/such/folder/trace.json", 1);
              for (int i = 0; i < 2; ++i)
                expect_contains(text_of<ArgumentError>([] { spawn([] {}); }), {"trace", "/no/such/folder/trace.json"});
              if (::testing::Test::HasFailure()) ::_exit(1);
            }),
            "");
}

TEST(Watchdog, ReportsStuckTaskAndWaitingTasks) {
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
  expect_contains(said, {"warning: no task has ended for 0.3 s", "(TESSERA_WATCHDOG=0.3)", "stuck",
                         "has been running for", "last (cpu:0) has not begun: it depends on watchdog_test.cpp:",
                         ": it depends on stuck", "waiting for last"});
  EXPECT_EQ(said.find('\x1b'), said.npos);
  std::size_t warnings = 0;
  for (std::size_t at = 0; (at = said.find("no task has ended", at)) != said.npos; ++at) ++warnings;
  // There is at most one warning per period, even on a slow machine.
  EXPECT_LE(static_cast<double>(warnings), std::max(1.0, std::atof(said.c_str() + said.rfind("after ") + 6) / 0.3))
      << said;
}

TEST(Watchdog, IsSilentWhileTasksEndOrNoneExist) {
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

TEST(Watchdog, InvalidPeriodThrowsForEachTask) {
  for (const char* value : {"soon", "0", "-1", "nan", "5s"})
    EXPECT_EQ(errors_of([&] {
                ::setenv("TESSERA_WATCHDOG", value, 1);
                for (int i = 0; i < 2; ++i)
                  expect_contains(text_of<ArgumentError>([] { spawn([] {}); }), {"TESSERA_WATCHDOG", value});
                if (::testing::Test::HasFailure()) ::_exit(1);
              }),
              "");
}

}  // namespace
}  // namespace tessera

/// These tests fork while threads are running.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
