// SPDX-License-Identifier: Apache-2.0
// Tasks on every device: results, order, names, errors, cancellation, and tasks that end when their device work
// completes. task_exit_test.cpp tests forks and exits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stop_token>
#include <thread>

#include "tessera/array/functions.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/task.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/fresh_process.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using test::add;
using test::expect_contains;
using test::in_fresh_process;
using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

void spin_until(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}
const auto oops = []() -> int { throw std::runtime_error("oops"); };
/// Runs `body` in a process with this number of threads.
template <class F>
void with_threads(int threads, F&& body) {
  in_fresh_process([&] {
    SCOPED_TRACE(threads);
    ::setenv("TESSERA_THREADS", std::to_string(threads).c_str(), 1);
    ::alarm(60);
    body();
  });
}

// --- On every device

TEST_P(OnEveryDevice, ArraysCreatedByTaskAreOnItsDevice) {
  const Task<Array> made = spawn({.scope = GetParam()}, [] {
    EXPECT_EQ(current_device(), this_task::device());
    EXPECT_EQ(this_task::queue().device(), this_task::device());
    return Array::full({100}, 3) * 2;
  });
  EXPECT_EQ(made.fetch().device(), GetParam());
  const Task<float> total = spawn(
      {.scope = GetParam()}, [](const Array& x) { return sum(x).item<float>(); }, made);
  EXPECT_EQ(total.fetch(), 600);
  EXPECT_FALSE(this_task::exists());
}

TEST_P(OnEveryDevice, ResultsAreCopiedToDeviceOfConsumer) {
  const Scope there(GetParam());
  Task<Array> made = spawn({.scope = there}, [] { return Array::arange(5) * 2; });
  EXPECT_EQ(spawn(
                {.scope = cpu()}, [](const Array& x) { return x.host_access().as<float>()[1]; }, made)
                .fetch(),
            2);
  EXPECT_EQ(spawn(
                {.scope = cpu()}, [](auto& x) { return (x * 2).eval().device(); }, made)
                .fetch(),
            Device(Backend::cpu, 0));
  Task<Array> other = spawn({.scope = cpu()}, [] { return Array::ones({5}); });
  const std::vector<Task<Array>> both = {made, other};
  EXPECT_EQ(
      spawn(
          {.scope = there}, [](const std::vector<Array>& all) { return sum(all[0] + all[1]).item<float>(); }, both)
          .fetch(),
      25);
  EXPECT_EQ(made.fetch().device(), GetParam());
}

TEST_P(OnEveryDevice, KernelsRunAsTasks) {
  const auto saxpy = kernel("saxpy", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
    auto i = global_id();
    y[i] = a * x[i] + y[i];
  });
  const Array x = Array::arange(1000), y = Array::full({1000}, 1);
  const Task<void> first = spawn(saxpy, Extent{1000}, x, y, 2.0f);  // without a scope, on the device of its buffers
  EXPECT_EQ(first.name(), "saxpy");
  EXPECT_EQ(first.device(), GetParam());
  const Task<void> second = spawn({}, saxpy, Extent{1000}, x, y, 1.0f, first);
  second.wait();
  EXPECT_EQ(y.to_vector<float>().at(999), 3 * 999 + 1);
  const Task<Array> made = spawn({.scope = GetParam()}, [] { return Array::zeros({1000}); });
  spawn(saxpy, Extent{1000}, x, y, 0.0f).wait();
  spawn(
      {.scope = GetParam()}, [&](const Array& z) { saxpy.launch({1000}, x, Array(z), 1.0f); }, made)
      .wait();
  EXPECT_EQ(made.fetch().to_vector<float>().at(7), 7);
  // With a scope, the kernel runs on a device of the scope. Its results are written back when they are read on the home
  // device.
  const Task<void> told = spawn({.scope = cpu()}, saxpy, Extent{1000}, x, y, 1.0f);
  EXPECT_EQ(told.device(), Device{});
  EXPECT_EQ(y.device(), GetParam());
  EXPECT_EQ(y.to_vector<float>().at(999), 4 * 999 + 1);
}

TEST_P(OnEveryDevice, RandomTaskGraphsMatchSequentialExecution) {
  for (int round = 0; round < 10; ++round) {
    std::vector<std::vector<float>> expected;
    std::vector<Task<Array>> tasks;
    for (int i = 0; i < 30; ++i) {
      const auto a = random() % 1000, pick = random(), other = random();
      const int delay = static_cast<int>(random() % 30);
      if (i < 3) {
        tasks.push_back(spawn({.scope = GetParam()}, [a] { return Array::full({64}, static_cast<float>(a)); }));
        expected.emplace_back(64, static_cast<float>(a));
        continue;
      }
      const auto l = pick % static_cast<unsigned>(i), r = other % static_cast<unsigned>(i);
      tasks.push_back(spawn(
          {.scope = GetParam(), .priority = static_cast<int>(pick % 8) - 4},
          [delay](const Array& left, const Array& right) {
            for (int d = 0; d < delay; ++d) std::this_thread::yield();
            return left * 0.5f + right * 0.25f;
          },
          tasks[l], tasks[r]));
      std::vector<float> values(64);
      for (std::size_t k = 0; k < 64; ++k) values[k] = expected[l][k] * 0.5f + expected[r][k] * 0.25f;
      expected.push_back(values);
    }
    for (std::size_t i = tasks.size(); i-- > 0;)
      for (const float v : tasks[i].fetch().to_vector<float>()) ASSERT_NEAR(v, expected[i][0], 1e-3f);
  }
}

TEST_P(OnEveryDevice, StrictPlacementIsInherited) {
  const Device other = GetParam() == Device{} ? Device{Backend::interp, 0} : Device{};
  const Placement strict = Placement::strict({GetParam()});
  const auto makes = [] { return sum(Array::ones({10})).item<float>(); };
  EXPECT_EQ(spawn({.scope = GetParam()}, makes).fetch(), 10);
  expect_contains(text_of<TaskError>([&] { spawn({.scope = other}, makes).fetch(); }), {to_string(other)});
}

// --- Results

TEST(Tasks, AcceptValuesReferencesAndTasksAsArguments) {
  const Task<int> three = spawn([] { return 3; });
  EXPECT_EQ(spawn([](int a, double b) { return a * b; }, three, 2.5).fetch(), 7.5);
  int outside = 0;
  const Task<void> writes = spawn([](int& x, int y) { x = y; }, std::ref(outside), three);
  EXPECT_EQ(spawn([] { return 1; }).valid(), true);
  EXPECT_EQ(spawn([&](int x) { return outside + x; }, 1, writes).fetch(), 4) << "Task<void> is not passed";
  EXPECT_EQ(spawn(
                {}, [](int a, int b, int c, int d, int e) { return a + b + c + d + e; }, 1, 2, 3, 4, three)
                .fetch(),
            13);
  std::vector<Task<int>> squares;
  for (int i = 0; i < 10; ++i) squares.push_back(spawn([i] { return i * i; }));
  EXPECT_EQ(spawn([](const std::vector<int>& all) { return all.at(9); }, squares).fetch(), 81);
  EXPECT_EQ(when_all(squares).fetch().size(), 10u);
  EXPECT_EQ(when_all(three, writes, squares[2]).fetch(), (std::tuple(3, 4)));
  const Task<void> nothing = when_all(writes, writes);
  nothing.wait();
  EXPECT_EQ(three.then([](int x) { return x + 1; }).then([](int x) { return x * 2; }).fetch(), 8);
  EXPECT_EQ(writes.then([&] { return outside; }).fetch(), 3);
  EXPECT_EQ(*spawn([] { return std::make_unique<int>(5); }).take(), 5);
  EXPECT_EQ(
      spawn([](const std::unique_ptr<int>& p) { return *p; }, spawn([] { return std::make_unique<int>(6); })).fetch(),
      6);
  auto kept = std::make_shared<int>(1);
  const Task<void> holds = spawn([kept](const std::shared_ptr<int>&) {}, kept);
  holds.wait();
  EXPECT_EQ(kept.use_count(), 1) << "arguments are destroyed when the task has ended";
  EXPECT_THROW(Task<int>().fetch(), ArgumentError);
}

TEST(Tasks, NamesDefaultToKernelOrLocation) {
  const Task<void> plain = spawn([] {});
  const int line = __LINE__ - 1;
  EXPECT_EQ(plain.name(), "task_test.cpp:" + std::to_string(line));
  EXPECT_EQ(spawn({.priority = 1}, [] {}).name(), "task_test.cpp:" + std::to_string(__LINE__));
  EXPECT_EQ(spawn({.name = "mine"}, [] { return this_task::name(); }).fetch(), "mine");
  EXPECT_EQ(plain.then([] {}).name(), "task_test.cpp:" + std::to_string(__LINE__));
  EXPECT_THROW(this_task::name(), Error);
}

TEST(Tasks, CanBeWaitedForInAnyOrderWithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 4})
    with_threads(threads, [] {
      for (int round = 0; round < 50; ++round) {
        const Task<int> a = spawn([] { return 1; });
        const Task<int> b = spawn([a] { return a.fetch() + 1; });
        EXPECT_EQ(spawn([b] { return b.fetch() + 1; }).fetch(), 3);
      }
      const std::function<int(int)> fib = [&](int n) -> int {
        if (n < 2) return n;
        const Task<int> one = spawn([&fib, n] { return fib(n - 1); });
        return fib(n - 2) + one.fetch();
      };
      EXPECT_EQ(spawn([&] { return fib(15); }).fetch(), 610);
      std::atomic<int> ran = 0;
      for (int i = 0; i < 20'000; ++i) spawn([&] { ++ran; });
      synchronize();
      EXPECT_EQ(ran, 20'000);
      if (std::getenv("TESSERA_THREADS") == std::string("1")) {
        std::atomic<bool> begun = false, go = false;
        spawn([&] { begun = true, spin_until(go); });
        spin_until(begun);
        std::vector<int> order;
        for (int i = 0; i < 12; ++i) spawn({.priority = i % 4 - 2}, [&order, i] { order.push_back(i % 4); });
        go = true;
        synchronize();
        EXPECT_TRUE(std::ranges::is_sorted(order, std::greater<>()));
      }
    });
}

TEST(Tasks, CpuTasksUseOneQueuePerThread) {
  with_threads(3, [] {
    std::atomic<int> here = 0;
    const auto meets = [&] {
      Queue* const queue = &this_task::queue();
      ++here;
      while (here < 2) std::this_thread::yield();
      return queue;
    };
    const Task<Queue*> a = spawn(meets), b = spawn(meets);
    EXPECT_NE(a.fetch(), b.fetch()) << "kernels of two tasks can run concurrently";
    EXPECT_EQ(&current_queue({}), &Queue::of({}));
  });
}

TEST(Tasks, SerialModeRunsTasksInSpawn) {
  in_fresh_process([] {
    ::setenv("TESSERA_TASKS", "serial", 1);
    const auto me = std::this_thread::get_id();
    std::vector<int> order;
    const Task<int> a = spawn([&] {
      EXPECT_EQ(std::this_thread::get_id(), me);
      order.push_back(1);
      return 1;
    });
    EXPECT_TRUE(a.ended());
    spawn([&](int) { order.push_back(2), spawn([&] { order.push_back(3); }), order.push_back(4); }, a);
    EXPECT_EQ(order, (std::vector{1, 2, 3, 4}));
    EXPECT_THROW(spawn([](int) {}, spawn(oops)).wait(), TaskError);
  });
  in_fresh_process([] {
    ::setenv("TESSERA_TASKS", "sideways", 1);
    test::expect_throw<ArgumentError>([] { spawn([] {}); }, {"TESSERA_TASKS=sideways", "serial"});
  });
}

// --- Errors and cancellation

TEST(Tasks, ErrorsReachDependentTasksWithNames) {
  const Task<int> bad = spawn({.name = "bad"}, oops), good = spawn({.name = "good"}, [] { return 1; });
  const auto add_up = [](int a, int b) { return a + b; };
  const Task<int> left = spawn({.name = "left"}, add_up, bad, good),
                  right = spawn({.name = "right"}, add_up, good, bad);
  const Task<int> bottom = spawn({.name = "bottom"}, add_up, left, right), unrelated = spawn(add_up, good, good);
  expect_contains(text_of<TaskError>([&] { bad.fetch(); }), {"task bad", "oops"});
  expect_contains(text_of<TaskError>([&] { left.fetch(); }), {"task bad", "oops", "skipped", "left"});
  expect_contains(text_of<TaskError>([&] { when_all(good, right).fetch(); }), {"task bad", "right, when_all"});
  try {
    bottom.fetch();
    ADD_FAILURE();
  } catch (const TaskError& e) {
    ASSERT_EQ(e.tasks().size(), 3u);
    EXPECT_EQ(e.tasks().front(), "bad");
    EXPECT_EQ(e.tasks().back(), "bottom");
    EXPECT_THROW(e.rethrow_cause(), std::runtime_error);
  }
  EXPECT_EQ(unrelated.fetch(), 2);
  expect_contains(text_of<TaskError>([&] { spawn([](int) {}, bad).wait(); }), {"oops"});
  // A function that calls fetch() passes the error on, even without a declared dependency.
  expect_contains(text_of<TaskError>([&] { spawn({.name = "asks"}, [bad] { return bad.fetch(); }).fetch(); }),
                  {"task asks", "task bad", "oops"});
  expect_contains(text_of<TaskError>([&] { spawn([] { throw 5; }).wait(); }), {"not a std::exception"});
  Task<int> chain = bad;
  for (int i = 0; i < 100; ++i) chain = chain.then([](int x) { return x; });
  expect_contains(text_of<TaskError>([&] { chain.fetch(); }), {"task bad", "92 others, then task_test.cpp"});
  synchronize();  // all of these errors have been observed
}

TEST(Tasks, ErrorsAreReportedOnce) {
  in_fresh_process([] {
    spawn({.name = "quiet"}, oops);
    expect_contains(text_of<TaskError>([] { synchronize(); }), {"task quiet", "oops"});
    synchronize();
    for (int i = 0; i < 20; ++i) spawn({.name = "several"}, oops);
    expect_contains(text_of<TaskError>([] { synchronize(); }), {"19 other tasks also failed", "and 11 more"});
    synchronize();
    const Task<int> asked = spawn(oops);
    EXPECT_THROW(asked.fetch(), TaskError);
    EXPECT_THROW(asked.fetch(), TaskError) << "fetch() throws each time";
    synchronize();
  });
}

TEST(Tasks, CancelledTasksDoNotRun) {
  for (const int threads : {1, 2})
    with_threads(threads, [] {
      std::atomic<bool> begun = false, go = false;
      const Task<bool> runs = spawn([&](std::stop_token stop) {
        begun = true;
        spin_until(go);
        return stop.stop_requested() && this_task::stop_requested();
      });
      spin_until(begun);
      std::atomic<int> ran = 0;
      const Task<int> waits = spawn([&](bool) { return ++ran; }, runs);
      const Task<int> normal = spawn([&](bool) { return ++ran; }, runs);
      EXPECT_TRUE(waits.cancel());
      EXPECT_FALSE(runs.cancel());
      go = true;
      EXPECT_TRUE(runs.fetch());
      EXPECT_EQ(normal.fetch(), 1);
      expect_contains(text_of<TaskCancelled>([&] { waits.fetch(); }), {"cancelled before it ran"});
      EXPECT_THROW(waits.then([](int) {}).wait(), TaskCancelled);
      EXPECT_FALSE(normal.cancel());

      std::stop_source source;
      begun = go = false;
      const Task<bool> sees = spawn({.stop = source.get_token()}, [&](std::stop_token stop) {
        begun = true;
        while (!stop.stop_requested()) std::this_thread::yield();
        return true;
      });
      const Task<void> later = spawn(
          {.stop = source.get_token()}, [](bool) {}, sees);
      spin_until(begun);
      source.request_stop();
      EXPECT_TRUE(sees.fetch());
      EXPECT_THROW(later.wait(), TaskCancelled);
      EXPECT_THROW(spawn({.stop = source.get_token()}, [] {}).wait(), TaskCancelled);
      synchronize();  // cancellations are not reported if they are not observed
    });
}

TEST(Tasks, WaitCyclesThrow) {
  for (const int threads : {1, 2})
    with_threads(threads, [] {
      std::atomic<bool> made = false;
      Task<void> self, before, after;
      self = spawn({.name = "self"}, [&] { spin_until(made), self.wait(); });
      before = spawn({.name = "before"}, [&] { spin_until(made), after.wait(); });
      after = spawn(
          {.name = "after"}, [] {}, before);
      const Task<void> all = spawn({.name = "all"}, [] { synchronize(); });
      made = true;
      expect_contains(text_of<TaskError>([&] { self.wait(); }), {"self waits for self"});
      expect_contains(text_of<TaskError>([&] { before.wait(); }), {"before waits for after, which comes after before"});
      expect_contains(text_of<TaskError>([&] { after.wait(); }), {"deadlock"});
      expect_contains(text_of<TaskError>([&] { all.wait(); }), {"all waits for the region of all"});
    });
}

// --- Asynchronous devices

TEST(Tasks, GpuTasksEndWhenTheirWorkCompletesAndReportFaults) {
  in_fresh_process([] {
    auto& driver = add(Backend::cuda, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
    const Device gpu{Backend::cuda, 0};
    const BufferView view{Storage::allocate(gpu, 4096), 0, 1024, DType::f32};
    const auto fill = [view] { this_task::queue().fill(view, 7); };
    driver.behaviour(0)->hold();
    const Task<void> task = spawn({.scope = gpu}, fill), next = spawn({.scope = gpu}, fill, task);
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(task.ended());
    driver.behaviour(0)->resume();
    next.wait();
    EXPECT_TRUE(task.ended());
    driver.behaviour(0)->lose = true;
    EXPECT_THROW(spawn({.scope = gpu}, fill).wait(), TaskError);
  });
}

}  // namespace
}  // namespace tessera

/// These tests fork while threads are running.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
