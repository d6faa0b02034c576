// SPDX-License-Identifier: Apache-2.0
// Regions with tasks that fail or are cancelled. Tests which tasks are skipped on which devices and which errors are
// reported. Also tests nested tasks on other devices.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stop_token>
#include <thread>

#include "tessera/task/region.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/run_with_timeout.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
const auto add = [](Array& v) { v += 1; };
const auto fails = [](Array&) { throw std::runtime_error("on purpose"); };

Array ones(const Shape& shape) { return Array::full(shape, 1, DType::f32, Device{}).copy().eval(); }
/// Returns a device other than the one under test.
Device other() { return current_device() == Device{} ? Device{Backend::interp, 0} : Device{}; }

TEST_P(OnEveryDevice, DependentsOfFailedTaskAreSkippedOnAllDevices) {
  const Device here = GetParam(), there = other();
  Array x = ones({4}), y = ones({4}), z = ones({4});
  Region r;
  r.spawn({.scope = here, .name = "breaks"}, fails, inout(x));
  const Task<void> reads = r.spawn(
      {.scope = there}, [](const Array& v, Array& w) { w += v; }, in(x), inout(y));
  const Task<void> fills = r.spawn(
      {.scope = there}, [](Array& v) { v.fill(7); }, out(x));  // does not need the result of the failed task
  const Task<void> later = r.spawn(
      {.scope = here}, [](const Array& v, Array& w) { w += v; }, in(x), inout(z));
  expect_throw<TaskError>([&] { r.wait(); }, {"breaks", "on purpose"});
  expect_throw<TaskError>([&] { reads.wait(); }, {"breaks", "skipped because of it"});
  fills.wait(), later.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 7));
  EXPECT_EQ(y.to_vector<float>(), Floats(4, 1));
  EXPECT_EQ(z.to_vector<float>(), Floats(4, 8));
}

TEST_P(OnEveryDevice, IndependentErrorsAreThrownOnceInOneList) {
  const Scope here{GetParam()};
  std::vector<Array> x(12);
  for (Array& a : x) a = ones({4});
  Region r({.scope = here});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::string number = std::to_string(i);
    if (i % 4 != 3) r.spawn({.name = "breaks " + number}, fails, inout(x[i]));
    for (int k = 0; k < 3; ++k) r.spawn({.name = "after " + number}, add, inout(x[i]));
  }
  try {
    r.wait();
    FAIL() << "no exception was thrown";
  } catch (const TaskError& e) {
    std::set<std::string> names = {e.tasks().front()};
    EXPECT_EQ(e.others().size(), 8u);
    for (const TaskError& other : e.others()) {
      names.insert(other.tasks().front());
      test::expect_contains(other.what(), {"task breaks", "on purpose"});
      EXPECT_THROW(other.rethrow_cause(), std::runtime_error);
      EXPECT_TRUE(other.others().empty());
    }
    EXPECT_EQ(names.size(), 9u) << "each listed once";
    test::expect_contains(e.what(), {"on purpose", "8 other tasks also failed:", "\n  [task breaks"});
  }
  // All errors were reported, so the arrays and the region can be used again.
  for (Array& a : x) r.spawn(add, inout(a));
  r.wait();
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i].to_vector<float>(), Floats(4, i % 4 == 3 ? 5 : 2)) << i;
  // If there is an error and a cancellation, the error is thrown, and neither of them is reported again.
  std::stop_source stop;
  stop.request_stop();
  r.spawn({.stop = stop.get_token(), .name = "stopped"}, add, inout(x[0]));
  r.spawn({.name = "next"}, add, inout(x[0]));
  r.spawn({.name = "breaks"}, fails, inout(x[1]));
  const std::string text = test::text_of<TaskError>([&] { r.wait(); });
  EXPECT_TRUE(test::holds(text, "task breaks"));
  EXPECT_FALSE(test::holds(text, "stopped"));
  for (const std::size_t i : {0, 1}) r.spawn(add, inout(x[i]));
  r.wait();
}

TEST_P(OnEveryDevice, FailedCommutingTaskFailsOnlyLaterTasks) {
  const Scope here{GetParam()};
  Array x = ones({4});
  Region r({.scope = here});
  const Task<void> reader = r.spawn(
      {.name = "reader"}, [](const Array&) { throw std::runtime_error("read"); }, in(x));
  std::vector<Task<void>> adds;
  for (int i = 0; i < 10; ++i) {
    if (i == 3) r.spawn({.name = "breaks"}, fails, commute(x));
    adds.push_back(r.spawn(add, commute(x)));
  }
  for (const Task<void>& t : adds) t.wait();  // they use neither the result of the reader nor that of the failed task
  const Task<void> after = r.spawn(add, inout(x));
  expect_throw<TaskError>([&] { after.wait(); }, {"breaks"});
  expect_throw<TaskError>([&] { reader.wait(); }, {"reader", "read"});
  EXPECT_THROW(r.wait(), TaskError);
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 11));
}

TEST_P(OnEveryDevice, ArraysOfCancelledRegionCanBeReused) {
  const Scope here{GetParam()};
  Array x = ones({4});
  std::atomic<bool> begun = false, left = false;
  try {
    Region r({.scope = here});
    const struct Leaving {
      std::atomic<bool>& left;
      ~Leaving() { left = true; }
    } leaving{left};  // destroyed before the region, which is then cancelled
    r.spawn(
        [&](Array& v) {
          begun = true;
          while (!left) std::this_thread::yield();
          std::this_thread::sleep_for(20ms);
          v += 1;
        },
        inout(x));
    while (!begun) std::this_thread::yield();
    for (int i = 0; i < 10; ++i) r.spawn(add, inout(x));
    throw std::out_of_range("leaving");
  } catch (const std::out_of_range&) {}
  Region r({.scope = here});
  r.spawn(add, inout(x));
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 3));
  for (int i = 0; i < 10; ++i) r.spawn(add, inout(x));
  r.cancel();
  r.wait();  // does not report the tasks that were cancelled here
  Region next({.scope = here});
  const Task<void> last = next.spawn([](Array& v) { v.fill(5); }, inout(x));
  next.wait(), last.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 5));
}

TEST_P(OnEveryDevice, TasksSkippedByCancellationAreReported) {
  const Scope here{GetParam()};
  Array x = ones({4});
  std::stop_source stop;
  stop.request_stop();
  Region r({.scope = here});
  r.spawn({.stop = stop.get_token(), .name = "stopped"}, add, inout(x));
  r.wait();  // not reported, because the caller cancelled it
  r.spawn({.name = "next"}, add, inout(x));
  expect_throw<TaskCancelled>([&] { r.wait(); }, {"stopped", "cancelled", "next"});
  r.spawn(add, inout(x));  // the cancellation was already reported
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 2));
}

TEST_P(OnEveryDevice, ExpressionsWaitForWritingTask) {
  Array x = ones({4}).to(GetParam());
  Region r({.scope = Scope(GetParam())});
  r.spawn(
      [](Array& v) {
        std::this_thread::sleep_for(10ms);
        v += 1;  // computes pending readers first
      },
      inout(x));
  const Array later = x + 10;
  EXPECT_EQ(later.to_vector<float>(), Floats(4, 12));
  r.spawn(
      [](Array& v) {
        std::this_thread::sleep_for(5ms);
        v += 1;
      },
      inout(x));
  x *= 2;
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 6));
}

// A task with a part of an array creates tasks on another device while other tasks use other parts of the array.
TEST_P(OnEveryDevice, NestedTasksOnOtherDeviceLeaveOtherPartsUsable) {
  Array x = ones({8, 6}), upper_of = ones({6, 6});
  constexpr int rounds = 20;
  Region r({.scope = GetParam()});
  for (int round = 0; round < rounds; ++round) {
    for (std::int64_t i = 0; i < 8; i += 2) {
      Array rows = x.slice(0, i, i + 2);
      if (i % 4 == 0)
        r.spawn(add, inout(rows));
      else
        r.spawn(
            [there = Scope(other())](Array& v) {
              Region inner({.scope = there});
              for (std::int64_t k = 0; k < 2; ++k) {
                Array row = v.slice(0, k, k + 1);
                inner.spawn(add, inout(row));
                inner.spawn(
                    [](Array& w) {
                      Region innermost;  // uses everything that the task can access
                      innermost.spawn({.scope = interp(1)}, add, inout(w));
                    },
                    inout(row));
              }
            },
            inout(rows));
    }
  }
  // The task can access only a triangle. The other elements of the matrix must not change.
  r.spawn(
      [there = Scope(other())](Array& m) {
        Region inner({.scope = there});
        inner.spawn([](Array& v) { v *= 3; }, inout(unit_upper(m)));
      },
      inout(upper(upper_of)));
  r.wait();
  const Floats got = x.to_vector<float>();
  for (std::size_t k = 0; k < got.size(); ++k) ASSERT_EQ(got[k], 1 + rounds * (k / 12 % 2 == 0 ? 1 : 2)) << "at " << k;
  const Floats triangle = upper_of.to_vector<float>();
  for (std::size_t k = 0; k < 36; ++k) ASSERT_EQ(triangle[k], k % 6 > k / 6 ? 3 : 1) << "at " << k;
}

// A task's deferred expression on an array that it writes is private to the task. It is not evaluated when the next
// task is created or when the main program reads the array.
TEST_P(OnEveryDevice, DeferredSelfAssignmentIsPrivateToTask) {
  Array x = Array::zeros({8}).copy().eval();
  constexpr int rounds = 60;
  Region r({.scope = Scope(GetParam())});
  for (int i = 0; i < rounds; ++i) {
    r.spawn([](Array& v) { v.assign(v + 1); }, inout(x));
    r.spawn([](Array& v) { v.assign(maximum(v, Array::zeros({8}))); }, inout(x));
    if (i % 10 == 9) {
      EXPECT_EQ(sum(x).item<float>(), 8.0f * static_cast<float>(i + 1));
    }
  }
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(8, rounds));
}

TEST_P(OnEveryDevice, DeferredReadsSeeOldValuesWhenOtherDeviceWrites) {
  Array x = Array::ones({8}, DType::f32, GetParam()).copy().eval(), kept;
  const Scope elsewhere = interp(GetParam() == Device{Backend::interp, 0} ? 1 : 0);
  Region r({.scope = Scope(GetParam())});
  r.spawn([&](const Array& v) { kept = v + 1; }, in(x));
  const auto given = r.spawn([](const Array& v) { return std::vector{v + 2, v + 3}; }, in(x));
  r.spawn({.scope = elsewhere}, add, inout(x));
  r.spawn({.scope = elsewhere}, add, inout(x)).wait();
  EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(8, 2));
  EXPECT_EQ(given.fetch()[1].to_vector<float>(), std::vector<float>(8, 4));
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(8, 3));
}

TEST_P(OnEveryDevice, DeferredReadsSeeOldValuesDuringConcurrentWrites) {
  Array x = Array::ones({8}, DType::f32, GetParam()).copy().eval(), y = x.copy().eval(), kept;
  std::atomic<bool> made = false, begun = false;
  Region r({.scope = Scope(GetParam())});
  r.spawn(
      [&](const Array& v, const Array& w) {
        while (!made) std::this_thread::yield();
        kept = v + w;
      },
      in(x), in(y));
  r.spawn(
      [&](Array& v) {
        begun = true;
        std::this_thread::sleep_for(50ms);
        v += 1;
      },
      inout(x));
  r.spawn(add, inout(y));
  made = true;
  while (!begun) std::this_thread::yield();
  test::run_with_timeout([&] { EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(8, 2)); });
  r.wait();
  EXPECT_EQ((x + y).to_vector<float>(), std::vector<float>(8, 4));
}

}  // namespace
}  // namespace tessera
