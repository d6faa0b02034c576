// SPDX-License-Identifier: Apache-2.0
// Tasks that reduce into one array. They run concurrently, results are deterministic, and contributions are combined
// before the next use of the array.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "tessera/array/functions.h"
#include "tessera/executor/executor.h"
#include "tessera/task/region.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
Array filled(double value, const Shape& shape = {4}, DType dtype = DType::f32) {
  return Array::full(shape, value, dtype).copy().eval();
}

TEST_P(OnEveryDevice, ReductionsAreCombinedBeforeNextRead) {
  const Scope here{GetParam()};
  Array x = filled(100), most = filled(3), least = filled(3, {4}, DType::i32), all = filled(2);
  Region r({.scope = here});
  for (int i = 1; i <= 20; ++i) {
    r.spawn(
        [i](Array& sum, Array& max) {
          if (i % 5 == 0) std::this_thread::sleep_for(300us);
          sum += i;
          max.assign(maximum(max, Array::full({4}, i % 13)));
        },
        reduce(Combine::sum, x), reduce(Combine::maximum, most));
    r.spawn([i](Array& v) { v.assign(minimum(v, Array::full({4}, i - 7, DType::i32))); },
            reduce(Combine::minimum, least));
    if (i <= 5) r.spawn([](Array& v) { v *= 2; }, reduce(Combine::product, all));
  }
  const Task<float> read = r.spawn([](const Array& v) { return sum(v).item<float>(); }, in(x));
  r.spawn([](Array& v) { v += 1; }, inout(x));
  r.spawn([](Array& v) { v += 1; }, reduce(Combine::sum, x));  // starts a new reduction
  EXPECT_EQ(read.fetch(), 4 * (100 + 210));
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 100 + 210 + 2)) << "read by the program without waiting";
  r.wait();
  EXPECT_EQ(most.to_vector<float>(), Floats(4, 12));
  EXPECT_EQ(least.to_vector<std::int32_t>(), std::vector<std::int32_t>(4, -6));
  EXPECT_EQ(all.to_vector<float>(), Floats(4, 64));
}

TEST_P(OnEveryDevice, ReductionsAreDeterministic) {
  const Array values = random_uniform({64, 8}, 5, -1, 1);
  std::optional<Floats> first;
  for (const unsigned delay : {0u, 200u, 50u}) {
    Array x = filled(0.1, {8});
    Region r({.scope = Scope(GetParam())});
    for (std::int64_t i = 0; i < 64; ++i) {
      const Array row = values.slice(0, i, i + 1).squeeze(0);
      r.spawn(
          [wait = std::chrono::microseconds(i * 7 % 5 == 0 ? delay : 0)](const Array& v, Array& to) {
            std::this_thread::sleep_for(wait);
            to += v;
          },
          in(row), reduce(Combine::sum, x));
    }
    r.wait();
    const Floats got = x.to_vector<float>();
    if (!first) first = got;
    EXPECT_EQ(got, *first);
  }
  const Floats expected = sum(values, {0}).to_vector<float>();
  for (std::size_t k = 0; k < 8; ++k) EXPECT_NEAR((*first)[k], expected[k] + 0.1f, 1e-4f);
}

TEST_P(OnEveryDevice, ReducingTasksRunConcurrentlyOnSeveralDevices) {
  Array x = filled(0), m = filled(0, {4, 4});
  Array top = m.slice(0, 0, 2), bottom = m.slice(0, 2, 4);
  std::atomic<int> inside = 0, most = 0;
  Region r({.scope = Scope(GetParam()) | cpu() | interp({0, 1})});
  for (int i = 0; i < 40; ++i) {
    r.spawn(
        [&](Array& to) {
          most = std::max(most.load(), ++inside);
          std::this_thread::sleep_for(200us);
          to += 1;
          --inside;
        },
        reduce(Combine::sum, x));
    r.spawn([](Array& to) { to += 1; }, reduce(Combine::sum, i % 2 == 0 ? top : bottom));
  }
  const Array later = x + 1;  // must read the old value
  r.spawn([](Array& to) { to += 100; }, reduce(Combine::sum, x));
  r.wait();
  if (executor::Executor::instance().threads() > 1) {
    EXPECT_GT(most, 1);
  }
  EXPECT_EQ(later.to_vector<float>(), Floats(4, 41));
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 140));
  EXPECT_EQ(m.to_vector<float>(), Floats(16, 20));
}

TEST_P(OnEveryDevice, NestedReductionsAreCombinedWhenTaskEnds) {
  Array x = filled(1);
  Region r({.scope = Scope(GetParam())});
  r.spawn(
      [](Array& v) {
        Region inner;
        for (int i = 0; i < 10; ++i) inner.spawn([](Array& to) { to += 1; }, reduce(Combine::sum, v));
        inner.wait();
        v *= 2;
        for (int i = 0; i < 10; ++i) inner.spawn([](Array& to) { to += 1; }, reduce(Combine::sum, v));
      },
      inout(x));
  const Task<float> after = r.spawn([](const Array& v) { return sum(v).item<float>(); }, in(x));
  EXPECT_EQ(after.fetch(), 4 * (22 + 10));
  r.wait();
}

TEST_P(OnEveryDevice, RejectsInvalidReductionsAndPropagatesFailures) {
  const Scope here{GetParam()};
  Array x = filled(0), wide = filled(0, {4}, DType::i64);
  Region r({.scope = here});
  const auto two = [](Array&, Array&) {};
  expect_throw<ArgumentError>([&] { r.spawn(two, reduce(Combine::sum, x), inout(x)); }, {"passed twice"});
  expect_throw<ArgumentError>([&] { r.spawn(two, in(x), reduce(Combine::sum, x)); }, {"passed twice"});
  expect_throw<DtypeError>([&] { r.spawn([](Array&) {}, reduce(Combine::maximum, wide)); }, {"maximum", "i64"});
  r.spawn([](Array& v) { v += 1; }, reduce(Combine::sum, x));
  r.spawn(
      {.name = "breaks"}, [](Array&) { throw std::runtime_error("on purpose"); }, reduce(Combine::sum, x));
  const Task<void> reads = r.spawn([](const Array&) {}, in(x));
  expect_throw<TaskError>([&] { reads.wait(); }, {"breaks", "on purpose", "combine by sum"});
  EXPECT_THROW(r.wait(), TaskError);
  r.spawn([](Array& v) { v += 1; }, reduce(Combine::sum, x));
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 1)) << "contributions of failed reductions are dropped";
  {
    Array dropped = filled(0);
    r.spawn([](Array& v) { v += 1; }, reduce(Combine::sum, dropped));
  }
  r.wait();
}

TEST_P(OnEveryDevice, FailedReductionsAreDroppedAfterTheErrorWasReported) {
  Array x = filled(7), rows = filled(1, {2, 4});
  Region r({.scope = Scope(GetParam())});
  const auto add = [](Array& v) { v += 1; };
  const auto add_and_throw = [](Array& v) {
    v += 10;
    throw std::runtime_error("on purpose");
  };
  for (int i = 0; i < 3; ++i) r.spawn(add, reduce(Combine::sum, x));
  r.spawn(add_and_throw, reduce(Combine::sum, x));
  EXPECT_THROW(r.wait(), TaskError);
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 7)) << "read after the error was observed";
  for (int i = 0; i < 3; ++i) r.spawn(add, reduce(Combine::sum, x));
  r.spawn(add_and_throw, reduce(Combine::sum, x));
  EXPECT_THROW(r.wait(), TaskError);
  for (int i = 0; i < 10; ++i) r.spawn(add, reduce(Combine::sum, x));
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 17)) << "only later contributions";
  // In a nested region with an error that was reported, the reduction of the failed row is dropped, and that of the
  // other row is combined.
  const Task<void> outer = r.spawn(
      [&](Array& both) {
        Array first = both.slice(0, 0, 1), second = both.slice(0, 1, 2);
        Region inner;
        for (int i = 0; i < 2; ++i) {
          inner.spawn(add, reduce(Combine::sum, first));
          inner.spawn(add, reduce(Combine::sum, second));
        }
        inner.spawn(add_and_throw, reduce(Combine::sum, second));
        EXPECT_THROW(inner.wait(), TaskError);
      },
      inout(rows));
  EXPECT_NO_THROW(outer.fetch());
  r.wait();
  EXPECT_EQ(rows.to_vector<float>(), (Floats{3, 3, 3, 3, 1, 1, 1, 1}));
}

TEST_P(OnEveryDevice, OnlyOverlappingReductionsAreCombined) {
  Array x = filled(7, {2, 4}), first = x.slice(0, 0, 1), second = x.slice(0, 1, 2);
  Region r({.scope = Scope(GetParam())});
  const auto add = [](Array& v) { v += 1; };
  r.spawn([](Array&) { throw std::runtime_error("on purpose"); }, reduce(Combine::sum, x));
  r.spawn([](Array& v) { v *= 2; }, reduce(Combine::product, first));
  r.spawn(add, reduce(Combine::sum, second));
  r.spawn(add, reduce(Combine::sum, first));  // the product is combined or skipped before this task
  EXPECT_THROW(r.wait(), TaskError);
  synchronize();  // waits for all tasks, including skipped ones
  EXPECT_EQ(x.to_vector<float>(), Floats(8, 8))
      << "contributions that were not used before the error was observed are kept";
}

TEST_P(OnEveryDevice, NestedReductionsAreCombinedIfOuterRegionIsCancelled) {
  Array x = filled(1);
  Task<void> outer;
  std::atomic<bool> reduced = false;
  try {
    Region r({.scope = Scope(GetParam())});
    outer = r.spawn(
        [&](Array& v) {
          {
            Region inner;
            for (int i = 0; i < 3; ++i) inner.spawn([](Array& part) { part += 1; }, reduce(Combine::sum, v));
          }
          reduced = true;
          while (!this_task::stop_requested()) std::this_thread::yield();
        },
        inout(x));
    while (!reduced) std::this_thread::yield();
    throw std::runtime_error("on purpose");
  } catch (const std::runtime_error&) {}
  EXPECT_NO_THROW(outer.fetch()) << "it had begun";
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 4));
}

TEST_P(OnEveryDevice, DeferredReadsSeeValuesBeforeReduction) {
  Array x = filled(3), y = filled(0);
  std::atomic<bool> deferred = false, go = false;
  Region r({.scope = Scope(GetParam())});
  r.spawn(
      [&](Array& v, Array& kept) {
        const Array before = v + 1;
        deferred = true;
        while (!go) std::this_thread::yield();
        v.assign(v * 2);
        kept.assign(before);
      },
      inout(x), inout(y));
  while (!deferred) std::this_thread::yield();
  r.spawn([](Array& v) { v += 1; }, reduce(Combine::sum, x));
  go = true;
  r.wait();
  EXPECT_EQ(y.to_vector<float>(), Floats(4, 4));
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 7));
}

}  // namespace
}  // namespace tessera
