// SPDX-License-Identifier: Apache-2.0
// Regions: sequential semantics, rejected accesses and the number of copies.
#include "tessera/task/region.h"
#include "tessera/executor/executor.h"
#include "tessera/task/access_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>
#include <thread>

#include "tessera/array/cached_operation.h"
#include "tessera/array/source.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/kernel/kernel.h"
#include "tessera/ops/product.h"
#include "tessera/task/products.h"
#include "tessera/task/task_storage.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
using namespace std::chrono_literals;

Array zeros(std::int64_t n) { return Array::zeros({n}); }

TEST_P(OnEveryDevice, TasksMatchSequentialExecution) {
  const Scope here{current_device()};
  Array x = Array::full({8}, 1), y = zeros(8);
  Region r({.scope = here});
  for (int i = 0; i < 5; ++i) {
    r.spawn([](Array& v) { v *= 2; }, inout(x));
    r.spawn([](const Array& v, Array& to) { to += v; }, in(x), inout(y));
  }
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(8, 32));
  EXPECT_EQ(y.to_vector<float>(), Floats(8, 2 + 4 + 8 + 16 + 32));
}

TEST_P(OnEveryDevice, SmallOperationsInTasksUseOperationCache) {
  if (!is_built_in(GetParam().backend)) return;
  const Scope here{current_device()};
  Array total = zeros(10);
  const Array y = Array::full({10}, 1);
  const auto again = [](Array& t, const Array& v) {
    for (int i = 0; i < 3; ++i) t += v, (t + v).eval();
    const std::uint64_t before = detail::CachedOperation::done();
    for (int i = 0; i < 10; ++i) t += v, (t + v).eval();
    return detail::CachedOperation::done() - before;
  };
  std::uint64_t captured = 0, declared = 0;
  Region r({.scope = here});
  r.spawn([&, t = total]() mutable { captured = again(t, y); });
  r.wait();
  r.spawn([&](Array& t, const Array& v) { declared = again(t, v); }, inout(total), in(y));
  r.wait();
  EXPECT_EQ(captured, 20u);
  EXPECT_EQ(declared, 20u);
  EXPECT_EQ(again(total, y), 20u) << "outside of tasks";
  EXPECT_EQ(total.to_vector<float>(), Floats(10, 39));
}

TEST_P(OnEveryDevice, KernelSignatureDeterminesAccessModes) {
  const auto saxpy = kernel("region_saxpy", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
    const auto i = global_id();
    y[i] += a * x[i];
  });
  Array x = Array::arange(16), y = Array::full({16}, 1);
  Region r({.scope = Scope{current_device()}});
  for (int i = 0; i < 4; ++i) r.spawn(saxpy, Extent{16}, x, y, 1.0f);
  Task<float> sum_of_y = r.spawn([](const Array& v) { return sum(v).item<float>(); }, in(y));
  EXPECT_EQ(sum_of_y.fetch(), 16 + 4 * 120);
}

TEST_P(OnEveryDevice, CommutingTasksRunOneAtATimeInAnyOrder) {
  const Scope here{current_device()};
  Array x = zeros(8), late = zeros(8);
  std::atomic<bool> later_has_run = false;
  std::atomic<int> inside = 0, most = 0;
  Region r({.scope = here});
  // The first task needs a result of the second task. In the order of submission, it would wait forever.
  r.spawn(
      [&](Array& v) {
        while (!later_has_run) std::this_thread::sleep_for(1ms);
        v += 1;
      },
      inout(late));
  r.spawn([](const Array& v, Array& to) { to += v; }, in(late), commute(x));
  for (int i = 0; i < 20; ++i)
    r.spawn(
        [&](Array& to) {
          most = std::max(most.load(), ++inside);
          std::this_thread::sleep_for(200us);
          to += 1;
          --inside;
          later_has_run = true;
        },
        commute(x));
  // Later tasks see all updates.
  Task<float> first = r.spawn([](const Array& v) { return v.slice(0, 0, 1).item<float>(); }, in(x));
  EXPECT_EQ(first.fetch(), 21);
  r.wait();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(x.to_vector<float>(), Floats(8, 21));
}

TEST(Regions, CommutingWithTwoArraysDoesNotDeadlock) {
  Array x = zeros(4), y = zeros(4);
  for (int round = 0; round < 20; ++round) {
    Region r;
    for (int i = 0; i < 10; ++i) {
      r.spawn([](Array& a, Array& b) { a += 1, b += 1; }, commute(x), commute(y));
      r.spawn([](Array& a, Array& b) { a += 1, b += 1; }, commute(y), commute(x));
      r.spawn([](Array& a) { a += 1; }, commute(x));
    }
    // A failed task affects later tasks, but not tasks that commute with it.
    if (round % 2 == 1) r.spawn([](Array&) { throw std::runtime_error("no"); }, commute(y));
    if (round % 2 == 1) {
      EXPECT_THROW(r.wait(), TaskError);
    } else {
      r.wait();
    }
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 30.0f * static_cast<float>(round + 1)));
  }
}

TEST_P(OnEveryDevice, MatmulIntoAnExistingArrayIsATask) {  // behaviour 26 in docs/guarantees.md
  const Scope here{current_device()};
  const Array a = random_uniform({17, 9}, 1), b = random_uniform({9, 13}, 2);
  const Floats once = matmul(a, b).to_vector<float>();
  Array c = Array::full({17, 13}, std::numeric_limits<float>::quiet_NaN());
  Region r({.scope = here});
  matmul(r, out(c), in(a), in(b));
  matmul(r, inout(c), in(a), in(b));
  r.wait();
  const Floats got = c.to_vector<float>();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], 2 * once[i], 1e-4f);
  Task<void> plain = matmul(out(c), in(a), in(b));  // outside of a region
  plain.fetch();
  EXPECT_NEAR(c.to_vector<float>()[0], once[0], 1e-4f);
  expect_throw<ArgumentError>([&] { matmul(r, in(c), in(a), in(b)); }, {"matmul of tasks", "c = in", "out(c)"});
  expect_throw<ArgumentError>([&] { matmul(r, out(c), inout(a), in(b)); }, {"a = inout", "in(a)"});
  Array wrong = Array::zeros({3, 3});
  matmul(r, out(wrong), in(a), in(b));
  expect_throw<TaskError>([&] { r.wait(); }, {"matmul", "(3, 3)"});
}

TEST_P(OnEveryDevice, ScratchIsPrivateToTask) {
  const Scope here{current_device()};
  Array x = Array::arange(16), y = zeros(16);
  Region r({.scope = here});
  for (int i = 0; i < 3; ++i)
    r.spawn(
        [](const Array& from, Array& some, Array& to) {
          EXPECT_EQ(some.shape(), (Shape{16}));
          EXPECT_EQ(some.device(), this_task::device());
          some.assign(from * 2.0f);
          to += some;
        },
        in(x), scratch({16}), inout(y));
  r.wait();
  EXPECT_EQ(y.to_vector<float>(), (Array::arange(16) * 6.0f).to_vector<float>());
}

TEST_P(OnEveryDevice, ProgramAccessesAreOrderedWithTasks) {
  Array x = zeros(4);
  Region r({.scope = Scope{current_device()}});
  for (int i = 1; i <= 3; ++i) {
    r.spawn([](Array& v) { std::this_thread::sleep_for(5ms), v += 1; }, inout(x));
    EXPECT_EQ(x.to_vector<float>(), Floats(4, static_cast<float>(i)));  // the host waits
    const Array later = x + 10;                                         // may be deferred
    r.spawn([](Array& v) { std::this_thread::sleep_for(5ms), v += 0; }, inout(x));
    EXPECT_EQ(later.to_vector<float>(), Floats(4, static_cast<float>(i) + 10));
  }
  r.spawn(
      [](const Array& v) {
        std::this_thread::sleep_for(10ms);
        EXPECT_EQ(sum(v).item<float>(), 12);
      },
      in(x));
  x.fill(7);  // waits for the task that reads it
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 7));
}

TEST_P(OnEveryDevice, DisjointPartsAreNotOrdered) {
  const Scope here{current_device()};
  Array m = Array::zeros({8, 8});
  Array left = m.slice(1, 0, 4), right = m.slice(1, 4, 8), middle = m.slice(0, 2, 6).slice(1, 2, 6);
  std::atomic<int> inside = 0, together = 0;
  const auto meet = [&](Array& part) {
    ++inside;
    for (int i = 0; i < 5000 && inside != 2; ++i) std::this_thread::sleep_for(1ms);  // gives slow machines enough time
    if (inside == 2) ++together;
    part += 1;
  };
  {
    Region r({.scope = here});
    r.spawn(meet, inout(left));
    r.spawn(meet, inout(right));
    r.spawn([](Array& part) { part *= 10; }, inout(middle));
    r.spawn([](Array& part) { part += 1; }, inout(left));
  }
  if (executor::Executor::instance().threads() > 1) {
    EXPECT_EQ(together, 2);
  }
  const Floats v = m.to_vector<float>();
  EXPECT_EQ(v[0], 2);
  EXPECT_EQ(v[7], 1);
  EXPECT_EQ(v[2 * 8 + 2], 11);
  EXPECT_EQ(v[2 * 8 + 5], 10);
}

TEST_P(OnEveryDevice, TrianglesAreDisjointExceptForDiagonal) {
  Array m = Array::zeros({4, 4});
  std::vector<Task<void>> tasks;
  Region r({.scope = Scope{current_device()}});
  std::atomic<bool> go = false;
  const auto wait_for_go = [&](Array&) {
    while (!go) std::this_thread::sleep_for(1ms);
  };
  const auto nothing = [](Array&) {};
  Task<void> first = r.spawn(wait_for_go, inout(unit_upper(m)));
  Task<void> apart = r.spawn(nothing, inout(lower(m)));
  Task<void> on_diagonal = r.spawn(nothing, inout(diagonal(m)));
  Task<void> met = r.spawn(nothing, inout(upper(m)));
  apart.wait(), on_diagonal.wait();
  EXPECT_FALSE(met.ended());
  go = true;
  first.wait(), met.wait();
  r.wait();
  expect_throw<ShapeError>([&] { r.spawn(nothing, inout(upper(Array::zeros({3})))); }, {"upper triangle", "(3,)"});
}

TEST_P(OnEveryDevice, UndeclaredAccessThrowsWithTaskAndArrayName) {
  const Scope here{current_device()};
  Array x = Array::wrap(Storage::allocate(current_device(), 32, "weights"), DType::f32, {8});
  x.fill(1);
  const auto words = [&](auto&& f) {
    try {
      f();
    } catch (const TaskError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  expect_contains(words([&] {
                    Region r({.scope = here});
                    r.spawn(
                        {.name = "writer"}, [](const Array& v) { Array(v) += 1; }, in(x));
                    r.wait();
                  }),
                  {"writer", "weights", "passed as in", "inout(x)"});
  std::atomic<bool> begun = false, done = false;
  expect_contains(
      words([&] {
        Region r({.scope = here});
        r.spawn(
            [&](Array&) {
              begun = true;
              while (!done) std::this_thread::sleep_for(1ms);
            },
            inout(x));
        while (!begun) std::this_thread::sleep_for(1ms);
        const Task<float> t = r.spawn({.name = "thief"}, [x] { return sum(x).item<float>(); });
        try {
          t.wait();
        } catch (const TaskError&) {}
        done = true;
        r.wait();
      }),
      {"thief", "weights", "reads an array that it did not declare, while other tasks use", "in(x), or inout(x)"});
  EXPECT_EQ(x.to_vector<float>(), Floats(8, 1));
}

std::string error_of(const auto& task) {
  try {
    task.wait();
  } catch (const TaskError& e) {
    return e.what();
  }
  return "no error";
}

TEST_P(OnEveryDevice, DetectsConcurrentTasksThatCaptureAnArrayIfOneOfThemWrites) {
  const Scope here{current_device()};
  Array x = Array::wrap(Storage::allocate(current_device(), 32, "weights"), DType::f32, {8});
  x.fill(1);
  // Other tasks use `x` while the first task is running, after the first task has written `x` or created a task.
  const auto while_running = [&](auto&& first, auto&& others) {
    std::atomic<bool> used = false, done = false;
    const Task<void> runs = spawn({.scope = here}, [&] {
      first();
      used = true;
      while (!done) std::this_thread::sleep_for(1ms);
    });
    while (!used && !runs.ended()) std::this_thread::sleep_for(1ms);
    others();
    done = true;
    runs.wait();
  };
  const auto add = [x] { Array(x) += 1; };
  const auto total = [x] { return sum(x).item<float>(); };
  while_running(add, [&] {
    expect_contains(error_of(spawn({.scope = here, .name = "thief"}, add)),
                    {"thief", "weights", "while other tasks use that array", "inout(x)"});
    expect_contains(error_of(spawn({.scope = here, .name = "reader"}, total)),
                    {"reader", "reads an array that it did not declare, while other tasks use"});
  });
  while_running(total, [&] { EXPECT_NE(error_of(spawn({.scope = here}, add)), "no error"); });
  // These are allowed: readers, tasks that depend on each other, and tasks that the writing task creates.
  while_running(total, [&] { EXPECT_EQ(spawn({.scope = here}, total).fetch(), 16); });
  spawn({.scope = here}, add).then(add).wait();
  spawn({.scope = here}, [&] {
    add();
    spawn({.scope = here}, add).wait();
    add();
  }).wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(8, 7));
}

TEST_P(OnEveryDevice, EmptyAccessesCauseNoOrderingCopiesOrInvalidation) {
  const Device here = current_device(), other = here == Device{} ? Device{Backend::interp, 0} : Device{};
  Array m = Array::zeros({6, 4}).copy().eval(), nothing = Array::zeros({0, 3});
  Array none = m.slice(0, 6, 6), of_none = none.slice(1, 1, 3), row = m.slice(0, 2, 3).slice(1, 0, 1);
  const std::vector<Accessed> empties = {
      inout(none),  out(none),      in(none),     commute(none),          reduce(Combine::sum, none), inout(of_none),
      out(of_none), inout(nothing), out(nothing), inout(unit_upper(row)), in(unit_lower(row))};
  const TaskCopies before = task_copies();
  for (const Accessed& empty : empties) {
    std::atomic<bool> begun = false, done = false;
    Region r;
    // A task that receives the current contents and ends after another task has overwritten everything.
    const Task<void> late = r.spawn(
        {.scope = other},
        [&](std::vector<Array> a) {
          EXPECT_EQ(a[0].device(), other);
          EXPECT_EQ(a[0].shape(), empty.array.shape());
          begun = true;
          while (!done) std::this_thread::sleep_for(100us);
        },
        std::vector<Accessed>{empty});
    if (executor::Executor::instance().threads() > 1)
      while (!begun) std::this_thread::sleep_for(100us);
    else
      done = true;
    r.spawn(
         {.scope = here}, [](Array& v) { v += 1; }, inout(m))
        .wait();  // has no dependencies
    done = true;
    r.wait();
  }
  EXPECT_EQ(m.to_vector<float>(), Floats(24, static_cast<float>(empties.size())));
  EXPECT_EQ(task_copies().fetched, before.fetched);
  EXPECT_EQ(task_copies().written_back, before.written_back);
}

TEST_P(OnEveryDevice, PartsCanBeWrittenOnSeveralDevices) {
  const Device here = current_device(), other = here == Device{} ? Device{Backend::interp, 0} : Device{};
  Array m = Array::zeros({6, 4}).copy().eval();
  constexpr int rounds = 20;
  Region r;
  for (int round = 0; round < rounds; ++round)
    for (std::int64_t begin = 0; begin < 8; begin += 2) {  // four parts of two rows; the last one is empty
      Array part = m.slice(0, begin, std::min<std::int64_t>(begin + 2, 6));
      r.spawn(
          {.scope = begin % 4 == 0 ? here : other}, [](Array& v) { v += 1; }, inout(part));
    }
  r.wait();
  EXPECT_EQ(m.to_vector<float>(), Floats(24, rounds));
}

TEST_P(OnEveryDevice, WaitThrowsFirstErrorAndSkipsOnlyDependentTasks) {
  Array x = zeros(2), y = zeros(2);
  Region r({.scope = Scope{current_device()}});
  r.spawn(
      {.name = "breaks"}, [](Array&) { throw std::runtime_error("broken pipe"); }, inout(x));
  std::atomic<bool> skipped = true;
  r.spawn([&](const Array&) { skipped = false; }, in(x));
  r.spawn([](Array& v) { v += 3; }, inout(y));
  expect_throw<TaskError>([&] { r.wait(); }, {"breaks", "broken pipe"});
  EXPECT_TRUE(skipped);
  EXPECT_EQ(y.to_vector<float>(), Floats(2, 3));
  r.spawn([](Array& v) { v += 1; }, inout(y));  // errors are reported only once, and the region can be used again
  r.wait();
  EXPECT_EQ(y.to_vector<float>(), Floats(2, 4));
}

TEST_P(OnEveryDevice, ExceptionInRegionScopeCancelsTasksThatHaveNotBegun) {
  Array x = zeros(2);
  std::atomic<int> ran = 0;
  std::atomic<bool> begun = false;
  try {
    Region r({.scope = Scope{current_device()}});
    r.spawn(
        [&](Array&) {
          begun = true;
          std::this_thread::sleep_for(20ms);
          ++ran;
        },
        inout(x));
    while (!begun) std::this_thread::sleep_for(1ms);
    for (int i = 0; i < 100; ++i) r.spawn([&](Array&) { ++ran; }, inout(x));
    throw std::out_of_range("leaving");
  } catch (const std::out_of_range&) {}
  EXPECT_EQ(ran, 1);
}

TEST_P(OnEveryDevice, NestedTasksStayWithinParentAccesses) {
  const Scope here{current_device()};
  Array x = Array::zeros({4, 4});
  Region r({.scope = here});
  r.spawn(
      [](Array& m) {
        Region inner;
        for (int i = 0; i < 4; ++i) {
          Array row = m.slice(0, i, i + 1);
          inner.spawn([i](Array& v) { v += i; }, inout(row));
        }
        inner.wait();
        m *= 2;
        Array row = m.slice(0, 0, 1);
        // The parent task ends after this task.
        spawn([](Array& v) { std::this_thread::sleep_for(5ms), v += 100; }, inout(row));
      },
      inout(x));
  Task<float> total = r.spawn([](const Array& m) { return sum(m).item<float>(); }, in(x));
  EXPECT_EQ(total.fetch(), 2 * 4 * (0 + 1 + 2 + 3) + 400);
  Array half = x.slice(0, 0, 2);
  r.spawn(
      [x](Array&) {
        Region inner;
        Array whole = x;
        inner.spawn([](Array& v) { v += 1; }, inout(whole));
      },
      inout(half));
  expect_throw<TaskError>([&] { r.wait(); }, {"not within"});
}

// A task's nested tasks may use arrays that the task creates, even if the task itself has array arguments.
TEST_P(OnEveryDevice, NestedTasksCanUseArraysThatTheirParentCreates) {
  const Scope here{current_device()};
  const auto work = [](Array& given) {
    Array t = Array::zeros({4, 4}), u = Array::zeros({4, 4});
    const auto slow_add = [](Array& v) {
      std::this_thread::sleep_for(1ms);
      v += 1;
    };
    {
      Region inner;
      for (int i = 0; i < 3; ++i) inner.spawn(slow_add, inout(t));
      inner.spawn([](const Array& from, Array& to) { to += from; }, in(t), inout(u));
      inner.spawn(slow_add, inout(given));
      for (int i = 0; i < 4; ++i) inner.spawn(slow_add, reduce(Combine::sum, u));
      for (int i = 0; i < 2; ++i) inner.spawn(slow_add, commute(t));
      EXPECT_EQ(u.to_vector<float>(), Floats(16, 3 + 4));  // waits for the tasks
      u *= 2;
    }
    given += 1;
    spawn(slow_add, inout(u)), spawn(slow_add, inout(u));
    EXPECT_EQ(t.to_vector<float>(), Floats(16, 5));
    return u.to_vector<float>();  // waits for the tasks
  };
  const Floats expected(16, 2 * 7 + 2);
  EXPECT_EQ(spawn({.scope = here},
                  [&] {
                    Array mine = Array::zeros({4, 4});
                    return work(mine);
                  })
                .fetch(),
            expected);
  Array x = Array::zeros({4, 4}), y = Array::zeros({4, 4});
  EXPECT_EQ(spawn(
                {.scope = here}, [&](const Array&, Array& given) { return work(given); }, in(x), inout(y))
                .fetch(),
            expected);
  EXPECT_EQ(
      spawn(
          {.scope = here}, [&](const Array&, Array& some) { return some.fill(0), work(some); }, in(x), scratch({4, 4}))
          .fetch(),
      expected);
  EXPECT_EQ(y.to_vector<float>(), Floats(16, 2));
  // Nested tasks cannot use arrays of other tasks.
  std::atomic<bool> done = false;
  const Task<void> uses = spawn(
      {.scope = here},
      [&](Array& v) {
        while (!done) std::this_thread::sleep_for(1ms);
        v += 1;
      },
      inout(x));
  const Task<void> refused = spawn(
      {.scope = here, .name = "maker"},
      [x](Array&) {
        Array whole = x;
        Region inner;
        inner.spawn([](Array& v) { v += 1; }, inout(whole));
      },
      inout(y));
  expect_contains(error_of(refused), {"maker", "other tasks use it, and it is not an argument of the parent task"});
  done = true;
  uses.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(16, 1));
}

// A new task on a range of rows is compared only with tasks on ranges that may overlap, and with few tasks that have
// already ended.
TEST(Regions, CompareNewTasksOnlyWithNearbyUnfinishedOnes) {
  constexpr std::int64_t rows = 4096;
  constexpr int tasks = 1000;
  Array m = Array::zeros({rows, 2}).copy().eval();
  Floats expected(2 * rows, 0);
  const auto add = [](Array& v) { v += 1; };
  const auto spawn_range = [&](Region& r, std::int64_t i) {
    const std::int64_t begin = i * 617 % rows, end = std::min(begin + 1 + i * 7 % 9, rows);
    Array range = m.slice(0, begin, end);
    r.spawn(add, inout(range));
    for (auto k = static_cast<std::size_t>(2 * begin); k < static_cast<std::size_t>(2 * end); ++k) expected[k] += 1;
  };
  Region r;
  for (std::int64_t i = 0; i < rows; ++i) {
    Array row = m.slice(0, i, i + 1);
    r.spawn([](Array&) {}, inout(row));
  }
  r.wait();
  detail::TaskStorage& data = detail::TaskStorage::of(*m.source()->memory());
  detail::AccessOrder& order = data.order();
  const std::uint64_t before = order.compared();
  for (int i = 0; i < tasks; ++i) {
    spawn_range(r, i);
    r.wait();
  }
  EXPECT_LE(order.compared() - before, 20u * tasks);
  EXPECT_EQ(m.to_vector<float>(), expected);
  // None of these tasks ends while the others are created.
  const std::uint64_t ended = order.compared();
  std::atomic<bool> go = false;
  const Task<void> first = r.spawn(
      [&](Array&) {
        while (!go) std::this_thread::sleep_for(1ms);
      },
      inout(m));
  for (int i = 0; i < tasks; ++i) spawn_range(r, i);
  go = true;
  r.wait();
  EXPECT_LE(order.compared() - ended, rows + 20u * tasks);
  EXPECT_EQ(m.to_vector<float>(), expected);
  // A task that reads everything replaces the earlier entries.
  for (int i = 0; i < 2; ++i) r.spawn([](const Array&) {}, in(m)), r.wait();
  EXPECT_LE(order.parts(), 64u);
}

TEST_P(OnEveryDevice, SeveralThreadsCanCreateTasksOnTheSameArrays) {
  constexpr int makers = 4, each = 100;
  const Scope here{current_device()};
  Array x = zeros(4), y = zeros(4);
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int m = 0; m < makers; ++m)
    threads.emplace_back([&, m] {
      try {
        Region r({.scope = here});
        const auto add = [](Array& a, Array& b) { a += 1, b += 1; };
        for (int i = 0; i < each; ++i)
          if (m % 2 == 0)
            r.spawn(add, inout(x), inout(y));
          else
            r.spawn(add, inout(y), inout(x));
        r.wait();
      } catch (const std::exception& e) {
        if (++refused == 1) ADD_FAILURE() << e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(x.to_vector<float>(), Floats(4, makers * each));
  EXPECT_EQ(y.to_vector<float>(), Floats(4, makers * each));
}

TEST_P(OnEveryDevice, SameArrayCanBePassedTwice) {
  Array x = Array::full({4}, 3);
  Region r({.scope = Scope{current_device()}});
  r.spawn([](const Array& a, Array& b) { b += a; }, in(x), inout(x));
  r.spawn([](const Array& a, const Array& b, Array& c) { c.assign(a * b); }, in(x), in(x), out(x));
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 36));
}

// Data is on the CPU, and tasks run on other devices. Checks the number of copies and the contents afterwards.
TEST_P(OnEveryDevice, TasksMakeOnlyNecessaryCopies) {
  const Device there = current_device();
  const DeviceScope at_home{Device{Backend::cpu, 0}};
  const bool local = there == Device{Backend::cpu, 0};
  Array x = Array::full({1024}, 1), y = zeros(1024);
  x.eval(), y.eval();
  const auto copies = [](auto&& f) {
    const TaskCopies before = task_copies();
    f();
    const TaskCopies after = task_copies();
    return std::pair(after.fetched - before.fetched, after.written_back - before.written_back);
  };
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  const auto run = [&](auto&& body, auto... access) {
    Region r({.scope = Scope{there}});
    r.spawn(body, access...);
    r.wait();
  };
  // Only read: one copy the first time, none the second time.
  EXPECT_EQ(copies([&] { run([](const Array& v) { EXPECT_EQ(sum(v).item<float>(), 1024); }, in(x)); }),
            Pair(!local, 0));
  EXPECT_EQ(copies([&] { run([](const Array& v) { EXPECT_EQ(v.device(), this_task::device()); }, in(x)); }),
            Pair(0, 0));
  // Read and written: one copy to the device, and one copy back when the CPU reads it.
  EXPECT_EQ(copies([&] { run([](Array& v) { v += 1; }, inout(y)); }), Pair(!local, 0));
  EXPECT_EQ(copies([&] { run([](Array& v) { v += 1; }, inout(y)); }), Pair(0, 0)) << "valid since the previous region";
  EXPECT_EQ(copies([&] { EXPECT_EQ(y.to_vector<float>(), Floats(1024, 2)); }), Pair(0, !local));
  EXPECT_EQ(copies([&] { EXPECT_EQ(y.to_vector<float>(), Floats(1024, 2)); }), Pair(0, 0));
  // Overwritten: no copy to the device.
  Array z = zeros(1024);
  z.eval();
  EXPECT_EQ(copies([&] { run([](Array& v) { v.fill(5); }, out(z)); }), Pair(0, 0));
  EXPECT_EQ(copies([&] { EXPECT_EQ((z + 1).to_vector<float>(), Floats(1024, 6)); }), Pair(0, !local));
  // Partly overwritten: the other elements are needed, so they must be valid on the device.
  Array part = z.slice(0, 0, 10);
  EXPECT_EQ(copies([&] { run([](Array& v) { v.fill(9); }, out(part)); }), Pair(0, 0)) << "already valid on the device";
  EXPECT_EQ(sum(z).item<float>(), 5 * 1014 + 90);
  // Writing on the CPU invalidates the replica.
  z.fill(1);
  EXPECT_EQ(copies([&] { run([](const Array& v) { EXPECT_EQ(sum(v).item<float>(), 1024); }, in(z)); }),
            Pair(!local, 0));
}

TEST_P(OnEveryDevice, ParallelForCallsEachIndexOnce) {
  const Scope here{current_device()};
  for (const auto& [count, grain] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {1, 0}, {7, 3}, {100, 1}, {100, 1000}, {1000, 0}}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count) + 5);
    std::atomic<int> chunks = 0;
    Region r;
    Task<void> all = r.parallel_for({5, calls.size(), grain}, [&](std::size_t i) { ++calls[i]; });
    std::atomic<std::int64_t> seen = -1;
    r.spawn([&] { seen = std::count(calls.begin(), calls.end(), 1); }, all);
    r.wait();
    EXPECT_EQ(seen, count) << "later tasks run after each index";
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i < 5 ? 0 : 1) << i;
    r.parallel_for({0, count, grain}, [&](std::int64_t begin, std::int64_t end) {
      ++chunks;
      EXPECT_LT(begin, end);
      for (; begin < end; ++begin) ++calls[static_cast<std::size_t>(begin)];
    });
    r.wait();
    if (grain != 0) {
      EXPECT_EQ(chunks, (count + grain - 1) / grain);
    }
    EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), 0), 2 * count);
  }
  // Chunks run concurrently and accept task arguments, such as a sum with eight slots.
  Array total = zeros(1), x = Array::arange(100);
  std::atomic<int> inside = 0;
  std::atomic<bool> together = false;
  Region r({.scope = here});
  r.parallel_for(
      {0, 100, 10},
      [&](int begin, int end, const Array& v, Array& part) {
        if (++inside > 1) together = true;
        for (int i = 0; i < 200 && !together; ++i) std::this_thread::sleep_for(1ms);
        part += sum(v.slice(0, begin, end));
        --inside;
      },
      in(x), reduce(Combine::sum, total));
  r.wait();
  EXPECT_EQ(total.to_vector<float>(), Floats{4950});
  if (executor::Executor::instance().threads() > 1 && is_built_in(current_device().backend)) {
    EXPECT_TRUE(together);
  }
  // If a chunk throws, its remaining indices are skipped, and the other chunks run. Errors are reported as for any
  // region.
  std::atomic<int> ran = 0;
  const Task<void> all = r.parallel_for({.name = "loop"}, {0, 100, 10}, [&](int i) {
    if (i % 50 == 5) throw std::out_of_range("at " + std::to_string(i));
    ++ran;
  });
  expect_throw<TaskError>([&] { r.wait(); }, {"task loop", "at 5", "1 other task also failed"});
  expect_throw<TaskError>([&] { all.wait(); }, {"task loop"});
  EXPECT_EQ(ran, 90);
}

TEST_P(OnEveryDevice, RegionCanBeMoved) {
  const Scope here{current_device()};
  Array x = zeros(4);
  const auto begun = [&] {
    std::optional<Region> r(std::in_place, TaskOptions{.scope = here});
    for (int i = 0; i < 3; ++i) r->spawn([](Array& v) { std::this_thread::sleep_for(1ms), v += 1; }, inout(x));
    return Region(std::move(*r));  // the region in the optional has been moved from
  };
  Region r = begun();
  const Task<Device> there = r.spawn([](const Array&) { return this_task::device(); }, in(x));
  r.wait();
  EXPECT_EQ(there.fetch(), current_device()) << "it keeps its options";
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 3));
  Region other = std::move(r);
  expect_throw<ArgumentError>([&] { r.spawn([] {}); }, {"moved"});
  expect_throw<ArgumentError>([&] { r.wait(); }, {"moved"});
  other.spawn([](Array& v) { v += 1; }, inout(x));
  other.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 4));
}

TEST_P(OnEveryDevice, RecordingRejectsRegions) {
  Array x = zeros(4);
  expect_throw<ArgumentError>([&] { Sequence::record(Queue::of(current_device()), [&] { Region r; }); },
                              {"a region of tasks"});
}

}  // namespace
}  // namespace tessera
