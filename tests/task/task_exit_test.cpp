// SPDX-License-Identifier: Apache-2.0
// Tasks in child processes, and tasks at the end of the program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tessera/array/array.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/task.h"
#include "tests/executor/nodes.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"
#include "tests/support/fresh_process.h"
#include "tests/support/run_in_child.h"

namespace tessera {

/// Created before main, so it is destroyed after all exit handlers have run.
struct AtTheEnd {
  void (*check)() = nullptr;
  ~AtTheEnd() {
    if (check) check();
  }
} at_the_end;

namespace {

using namespace std::chrono_literals;
using test::expect_contains;
using test::in_fresh_process;
using test::spin_until;
using test::text_of;

const auto oops = []() -> int { throw std::runtime_error("oops"); };

// --- Fork and exit

TEST(Tasks, RunInForkedChild) {
  in_fresh_process([] {
    std::atomic<bool> go = false;
    const Task<void> parents = spawn([&] { spin_until(go); });
    EXPECT_EQ(spawn([] { return 1; }).fetch(), 1);
    in_fresh_process([&] {
      ::alarm(30);
      std::atomic<int> ran = 0;
      for (int i = 0; i < 1000; ++i) spawn([&] { ++ran; });
      synchronize();
      EXPECT_EQ(ran, 1000);
      expect_contains(text_of<Error>([&] { parents.wait(); }), {"forked"});
      spawn({.name = "child's"}, oops);
      EXPECT_THROW(synchronize(), TaskError);
    });
    go = true;
    parents.wait();
  });
}

TEST(Exit, ReportsTasksThatDidNotRun) {
  for (const char* threads : {"1", "2"}) {
    const auto [text, status] = test::errors_at_exit([&] {
      ::setenv("TESSERA_THREADS", threads, 1);
      static std::atomic<int> begun = 0, ended = 0;
      at_the_end.check = [] {
        if (begun != ended || begun == 101) ::_exit(3);
        std::fprintf(stderr, "%d never began\n", 101 - begun);
      };
      for (int i = 0; i < 99; ++i)
        spawn({.name = "write a file"}, [] {
          ++begun;
          std::this_thread::sleep_for(30ms);
          ++ended;
        });
      const auto quick = [] { ++begun, ++ended; };
      spawn(quick).then(quick);  // one task is cancelled, and the other one is skipped because of that
      while (begun == 0) std::this_thread::yield();
    });
    EXPECT_EQ(status, 0) << text;
    const std::size_t at = text.find(" never began\n");
    ASSERT_NE(at, text.npos) << text;
    const int left = std::atoi(text.c_str() + text.rfind('\n', at) + 1);
    expect_contains(
        text, {"warning: " + std::to_string(left) + " tasks did not run because the program ended: write a file, ",
               " and " + std::to_string(left - 3) + " others. ", "synchronize()"});
  }
  const auto [text, status] = test::errors_at_exit([] {
    for (int i = 0; i < 100; ++i) spawn([] {});
    const Task<void> cancelled = spawn([] { std::this_thread::sleep_for(30ms); }).then([] {});
    cancelled.cancel();
    synchronize();
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text, "");
}

TEST(Exit, ReportsUnobservedErrors) {
  const auto [text, status] = test::errors_at_exit([] {
    const Task<int> asked = spawn({.name = "asked"}, oops), quiet = spawn({.name = "quiet"}, oops);
    const Task<int> after = spawn(
        {.name = "after"}, [](int x) { return x; }, quiet);
    while (!after.ended() || !asked.ended()) std::this_thread::yield();
    try {
      asked.fetch();
    } catch (const TaskError&) {}
  });
  EXPECT_EQ(status, 0);
  expect_contains(text, {"task quiet failed", "never observed", "oops"});
  EXPECT_EQ(text.find("asked failed"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

TEST(Exit, DriverTasksEndBeforeStaticObjectsOfTheDriverAreDestroyed) {
  const test::Folder folder;
  constexpr int no_device = 77;
  const auto [text, status] = test::errors_at_exit([&] {
    ::setenv("POCL_CACHE_DIR", (folder / "pocl").c_str(), 1);
    ::setenv("TESSERA_CACHE_DIR", (folder / "tessera").c_str(), 1);
    if (discover(Backend::opencl).devices.empty()) ::_exit(no_device);
    static std::atomic<bool> begun = false, ended = false;
    at_the_end.check = [] {
      if (!ended) ::_exit(3);
    };
    spawn({.scope = Scope({Device{Backend::opencl, 0}})}, [] {
      const DeviceScope scope({Backend::opencl, 0});
      const Array x = Array::full({1000}, 0.5f);
      begun = true;
      std::this_thread::sleep_for(500ms);
      ended = (silu(x) * 2.0f + x).to_vector<float>()[999] > 1;
    });
    while (!begun) std::this_thread::yield();
  });
  if (status == no_device) GTEST_SKIP() << "no OpenCL device";
  EXPECT_EQ(status, 0) << text;
}

}  // namespace
}  // namespace tessera

/// These tests fork while threads are running.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
