// SPDX-License-Identifier: Apache-2.0
// Behaviours of regions that users of task runtimes rely on, and the number of copies between devices. The numbers in
// the comments refer to docs/guarantees.md.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "tessera/array/functions.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/executor/executor.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/task/block_array.h"
#include "tessera/task/this_task.h"
#include "tessera/task/variants.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
const Device home{};

Array on(Device device, const Shape& shape, double value) {
  return Array::full(shape, value, DType::f32, device).copy().eval();
}
/// Returns four devices: those under test if there are enough, else interpreters.
std::vector<Device> four() {
  std::vector<Device> all;
  for (const Device d : testing::all_devices())
    if (d.backend == current_device().backend) all.push_back(d);
  if (all.size() < 4) all = interp({0, 1, 2, 3}).devices();
  all.resize(4);
  return all;
}
struct Copied {
  std::uint64_t fetched, back;
  friend bool operator==(const Copied&, const Copied&) = default;
  friend void PrintTo(const Copied& c, std::ostream* to) { *to << c.fetched << " fetched, " << c.back << " back"; }
};
template <class F>
Copied copies_of(F&& work) {
  const TaskCopies before = task_copies();
  work();
  const TaskCopies after = task_copies();
  return {after.fetched - before.fetched, after.written_back - before.written_back};
}

// Placement:

TEST_P(OnEveryDevice, TasksWithoutScopeRunOnTheDeviceOfTheirData) {
  const Device there = GetParam();
  const auto where = [](const auto&...) { return this_task::device(); };
  Array x = on(there, {64}, 1), small = on(there == home ? Device{Backend::interp, 0} : home, {1}, 1);
  const BlockArray blocks = BlockArray::ones({4, 4}, {2, 2}, DType::f32, Scope(there));
  Region r;
  EXPECT_EQ(r.spawn(where).fetch(), home) << "no data";
  EXPECT_EQ(r.spawn(where, 1, scratch({4})).fetch(), home);
  EXPECT_EQ(r.spawn(where, x).fetch(), there);
  EXPECT_EQ(r.spawn(where, in(small), inout(x)).fetch(), there) << "where most data is";
  EXPECT_EQ(r.spawn(where, blocks).fetch(), there);
  EXPECT_EQ(r.spawn(where, blocks.tile(1, 1)).fetch(), there);
  EXPECT_EQ(spawn(where, in(x)).fetch(), there) << "tasks outside of regions, too";
  EXPECT_EQ(r.spawn({.scope = cpu()}, where, in(x)).fetch(), home) << "the scope takes precedence";
  {
    const With in_force = with({.scope = cpu()});
    EXPECT_EQ(spawn(where, in(x)).fetch(), home);
  }
  // A task's result stays on its device, so the next task needs no copy. It can be combined with other arrays.
  EXPECT_EQ(spawn({.scope = cpu()}, [](const Array& v) { return v.host_view().as<float>()[0]; }, in(small)).fetch(),
            small.slice(0, 0, 1).item<float>())
      << "a task reads an array in place that it may not write";
  const Task<Array> sum_of = r.spawn([](const Array& v) { return sum(v); }, in(x));
  EXPECT_EQ(sum_of.then(where).fetch(), there);
  EXPECT_EQ(r.spawn([](const Array& s) { return s + s; }, sum_of).fetch().device(), there);
  EXPECT_EQ((sum_of.fetch() + x).to_vector<float>(), Floats(64, 65));
  // Among variants, the one for the device of the data is preferred.
  const auto either = [] {
    return for_device<cpu>([](const Array&) { return this_task::device(); }) |
           for_device<interp>([](const Array&) { return this_task::device(); });
  };
  EXPECT_EQ(r.spawn(either(), in(x)).fetch(), is_built_in(there.backend) ? there : home);
  // The example in docs/tasks.md makes no copies.
  std::vector<Array> parts(8);
  for (Array& p : parts) p = on(there, {100}, 1);
  Array sums = on(there, {100}, 0);
  EXPECT_EQ(copies_of([&] {
              for (Array& p : parts) {
                r.spawn([](Array& v) { v *= 2; }, inout(p));
                r.spawn([](const Array& v, Array& s) { s += v; }, in(p), inout(sums));
              }
              r.wait();
              EXPECT_EQ(sums.to_vector<float>(), Floats(100, 16));
            }),
            (Copied{0, 0}));
}

// Order and errors:

TEST_P(OnEveryDevice, RegionWaitsForAllTasksAndThrowsFirstError) {
  const Scope here{GetParam()};
  Array x = on(GetParam(), {4}, 0);
  const auto body = [&] {
    Region r({.scope = here});
    std::atomic<int>& count = *new std::atomic<int>(0);  // outlives the region in case the region does not wait
    for (int i = 0; i < 20; ++i)
      r.spawn([&] {
        std::this_thread::sleep_for(100us);
        ++count;
      });
    r.spawn([](Array& v) { v += 1; }, inout(x));
    r.wait();
    return count.load();
  };
  EXPECT_EQ(body(), 20);
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 1));
  for (int i = 0; i < 3; ++i)
    expect_throw<TaskError>(
        [&] {
          Region r({.scope = here});
          r.spawn(
              {.name = "first"}, [](Array&) { throw std::runtime_error("one"); }, inout(x));
          r.spawn(
              {.name = "second"}, [](Array& v) { v += 100; }, inout(x));
        },
        {"first", "one"});
  EXPECT_EQ(body(), 20) << "and the region can be reused";
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 2));
}

/// Returns the order in which the tasks ran.
template <class... A>
std::vector<int> order_of(Region& r, const std::vector<std::vector<Accessed>>& tasks) {
  std::vector<int> order;
  std::mutex lock;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    r.spawn(
        [&, i](const std::vector<Array>&) {
          // Earlier tasks are slower, so tasks that do not wait finish first.
          std::this_thread::sleep_for(2ms * (tasks.size() - i));
          const std::lock_guard hold(lock);
          order.push_back(static_cast<int>(i));
        },
        tasks[i]);
  r.wait();
  return order;
}

TEST_P(OnEveryDevice, WritersAndReadersOfOneArrayAreOrdered) {
  Array x = on(GetParam(), {4}, 0), y = on(GetParam(), {4}, 0);
  const std::vector<int> one_after_the_other = {0, 1, 2};
  const std::vector<std::vector<std::vector<Accessed>>> ordered = {
      {{inout(x)}, {in(x)}, {inout(x)}},             // write, read, write
      {{inout(x)}, {inout(x)}, {inout(x)}},          // write, write, write
      {{in(x)}, {inout(x)}, {in(x)}},                // read, write, read
      {{out(x)}, {in(x), in(x)}, {out(x)}},          // overwritten twice, with readers in between
      {{in(x), inout(x)}, {inout(x)}, {in(x)}},      // the same array with two access modes
      {{inout(x)}, {in(x), inout(y)}, {inout(y)}}};  // a dependency through a second array
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    Region r({.scope = Scope(GetParam())});
    EXPECT_EQ(order_of(r, ordered[i]), one_after_the_other) << i;
  }
  if (executor::Executor::instance().threads() > 1) {
    Region r({.scope = Scope(GetParam())});
    std::atomic<int> inside = 0, together = 0;
    for (int i = 0; i < 2; ++i)
      r.spawn(
          [&](const Array&) {
            ++inside;
            for (int k = 0; k < 500 && inside < 2; ++k) std::this_thread::sleep_for(1ms);
            together += inside >= 2 ? 1 : 0;
          },
          in(x));
    r.wait();
    EXPECT_EQ(together, 2) << "readers are not ordered";
  }
}

TEST_P(OnEveryDevice, OverlappingViewsAreOrdered) {
  Array m = on(GetParam(), {8, 8}, 0);
  Array middle = m.slice(0, 2, 6).slice(1, 2, 6), rows = m.slice(0, 1, 3), columns = m.slice(1, 2, 4);
  Array quadrants[] = {m.slice(0, 0, 4).slice(1, 0, 4), m.slice(0, 0, 4).slice(1, 4, 8),
                       m.slice(0, 4, 8).slice(1, 0, 4), m.slice(0, 4, 8).slice(1, 4, 8)};
  Array of_rows = rows.slice(1, 2, 3), of_columns = columns.slice(0, 1, 2);  // views of views, which overlap at (1, 2)
  Region r({.scope = Scope(GetParam())});
  for (Array& q : quadrants) EXPECT_EQ(order_of(r, {{inout(q)}, {inout(middle)}, {in(q)}}), (std::vector{0, 1, 2}));
  EXPECT_EQ(order_of(r, {{inout(rows)}, {inout(columns)}, {inout(middle)}}), (std::vector{0, 1, 2}));
  EXPECT_EQ(order_of(r, {{inout(of_rows)}, {inout(of_columns)}, {inout(m)}}), (std::vector{0, 1, 2}));
  // The computed values must also correspond to this order.
  for (Array& q : quadrants) r.spawn([](Array& v) { v += 1; }, inout(q));
  r.spawn([](Array& v) { v *= 10; }, inout(middle));
  for (Array& q : quadrants) r.spawn([](Array& v) { v += 1; }, inout(q));
  r.wait();
  EXPECT_EQ(sum(m).item<float>(), 16 * 11 + 48 * 2);
}

// Some tasks write overlapping parts, each on a different device. Other tasks write disjoint parts that cover the whole
// array.
TEST_P(OnEveryDevice, PartsWrittenOnSeveralDevicesAreMerged) {
  const std::vector<Device> devices = four();
  Array m = on(home, {6, 6}, 1);
  Array a = m.slice(0, 0, 3), b = m.slice(0, 2, 5), c = m.slice(0, 4, 6);
  Region r;
  for (int round = 0; round < 5; ++round) {
    r.spawn(
        {.scope = devices[1]}, [](Array& v) { v += 1; }, inout(a));
    r.spawn(
        {.scope = devices[2]}, [](Array& v) { v *= 2; }, inout(b));
    r.spawn(
        {.scope = devices[3]}, [](Array& v) { v -= 1; }, inout(c));
  }
  const Task<Floats> all = r.spawn(
      {.scope = devices[0]}, [](const Array& v) { return v.to_vector<float>(); }, in(m));
  Floats expected(36, 1);
  for (int round = 0; round < 5; ++round)
    for (std::size_t i = 0; i < 36; ++i) {
      const std::size_t row = i / 6;
      if (row < 3) expected[i] += 1;
      if (row >= 2 && row < 5) expected[i] *= 2;
      if (row >= 4) expected[i] -= 1;
    }
  EXPECT_EQ(all.fetch(), expected);
  r.wait();
  EXPECT_EQ(m.to_vector<float>(), expected) << "on the home device";
}

TEST_P(OnEveryDevice, ChainOfTasksIsOrderedThroughACopy) {
  const Scope here{GetParam()};
  Array a = on(GetParam(), {16}, 1), b = on(GetParam(), {16}, 0), c = on(GetParam(), {16}, 0);
  Region r({.scope = here});
  for (int i = 0; i < 20; ++i) {
    r.spawn([](Array& v) { v += 1; }, inout(a));
    r.spawn([](const Array& v, Array& w) { w.assign(v); }, in(a), out(b));
    r.spawn([](const Array& v, Array& w) { w += v; }, in(b), inout(c));
  }
  r.wait();
  EXPECT_EQ(a.to_vector<float>(), Floats(16, 21));
  EXPECT_EQ(c.to_vector<float>(), Floats(16, 20 * (2 + 21) / 2.0f));
}

TEST_P(OnEveryDevice, TreeReductionComputesTheSumOfAllArrays) {
  const std::size_t n = GetParam().backend == Backend::cpu ? 1000 : 100;
  std::vector<Array> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(on(GetParam(), {8}, static_cast<double>(i)));
  Region r({.scope = Scope(GetParam())});
  for (std::size_t step = 1; step < n; step *= 2)
    for (std::size_t i = 0; i + step < n; i += 2 * step)
      r.spawn([](const Array& v, Array& w) { w += v; }, in(all[i + step]), inout(all[i]));
  r.wait();
  EXPECT_EQ(all[0].to_vector<float>(), Floats(8, static_cast<float>(n * (n - 1) / 2)));
}

TEST_P(OnEveryDevice, TiledCholeskyInARegionMatchesCholesky) {
  const bool fast = GetParam().backend == Backend::cpu;
  const std::int64_t n = fast ? 300 : 40, side = n / 10;
  const Array x = random_uniform({n, n}, 3, -1, 1, home);
  Array a = (matmul(x, x.transpose()) + static_cast<double>(n) * BlockArray::identity(n, {n, n}).gather(home)).eval();
  const Array expected = cholesky(a);
  a = a.to(GetParam()).copy().eval();
  const auto tile = [&](std::int64_t i, std::int64_t j) {
    return a.slice(0, i * side, (i + 1) * side).slice(1, j * side, (j + 1) * side);
  };
  Array failure = Array::zeros({1}, DType::i32, GetParam()).eval();
  Region r({.scope = Scope(GetParam())});
  for (std::int64_t k = 0; k < 10; ++k) {
    Array diagonal_tile = tile(k, k);
    r.spawn([](Array& t, Array& f) { cholesky_into(t, f); }, inout(diagonal_tile), inout(failure));
    for (std::int64_t i = k + 1; i < 10; ++i) {
      Array below = tile(i, k);
      r.spawn(
          [](const Array& l, Array& t) {
            solve_triangular_into(l, t, {.side = Side::right, .triangle = Triangle::lower, .transposed = true});
          },
          in(diagonal_tile), inout(below));
    }
    for (std::int64_t j = k + 1; j < 10; ++j)
      for (std::int64_t i = j; i < 10; ++i) {
        Array rest = tile(i, j);
        r.spawn([](const Array& p, const Array& q, Array& t) { multiply_into(t, p, q.transpose(), {.alpha = -1}); },
                in(tile(i, k)), in(tile(j, k)), inout(rest));
      }
  }
  r.wait();
  check_cholesky(failure);
  EXPECT_LT(max(abs(tril(a.to(home)) - expected)).item<float>(), 1e-3f);
}

TEST_P(OnEveryDevice, InvalidInnerScopeThrowsAndOuterRegionContinues) {
  Array x = on(GetParam(), {4}, 0);
  Region r({.scope = Scope(GetParam())});
  r.spawn([](Array& v) { v += 1; }, inout(x));
  expect_throw<DeviceError>(
      [&] {
        r.spawn(
            {.scope = interp(99)}, [](Array& v) { v += 1; }, inout(x));
      },
      {"interp:99", "does not exist"});
  r.spawn([](Array& v) { v += 1; }, inout(x));
  r.wait();
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 2));
}

TEST_P(OnEveryDevice, InvalidTilesAndSlicesThrowImmediately) {
  BlockArray a = BlockArray::zeros({7, 5}, {4, 3}, DType::f32, GetParam());
  expect_throw<ShapeError>([&] { a.tile(2, 0); }, {"(2, 0)", "outside the grid"});
  expect_throw<ShapeError>([&] { a.tile(-1, 0); }, {"outside the grid"});
  expect_throw<ShapeError>([&] { a.tile(Shape{0}); }, {"outside the grid"});
  expect_throw<ShapeError>([&] { a.slice({0, 0}, {8, 5}); }, {"exceeds the array"});
  expect_throw<ShapeError>([&] { a.slice({3, 0}, {2, 5}); }, {"exceeds the array"});
  expect_throw<ShapeError>([&] { a.assign({5, 0}, BlockArray::zeros({3, 3}, {3, 3})); }, {"exceeds the array"});
  Array corner = a.tile(1, 1).array().slice(0, 1, 3).slice(1, 0, 2);
  Array inner = corner.slice(0, 1, 2);  // a view of a view of a tile
  Region r({.scope = Scope(GetParam())});
  r.spawn([](Array& v) { v += 1; }, inout(corner));
  r.spawn([](Array& v) { v *= 5; }, inout(inner));
  r.wait();
  EXPECT_EQ(a.slice({4, 3}, {7, 5}).gather(home).to_vector<float>(), (Floats{0, 0, 1, 1, 5, 5}));
}

// Copies:

TEST_P(OnEveryDevice, RegionsMakeOnlyNecessaryCopies) {
  const Device there = GetParam();
  const std::uint64_t one = there == home ? 0 : 1;
  const auto add = [](Array& v) { v += 1; };
  const auto once = [&](auto&& f, auto... accesses) {
    Region r({.scope = Scope(there)});
    r.spawn(f, accesses...);
    r.wait();
  };
  Array x = on(home, {256}, 1), y = on(there, {256}, 1), z = on(home, {256}, 1), w = on(home, {256}, 1);
  EXPECT_EQ(copies_of([&] { once([](const Array&) {}, in(x)); }), (Copied{one, 0})) << "29: read only";
  EXPECT_EQ(copies_of([&] { x.to_vector<float>(); }), (Copied{0, 0})) << "29: not written back";
  EXPECT_EQ(copies_of([&] { once(add, inout(y)), y.to_vector<float>(); }), (Copied{0, 0}))
      << "30: on the data's device";
  EXPECT_EQ(copies_of([&] { once(add, inout(z)), z.to_vector<float>(); }), (Copied{one, one})) << "31: there and back";
  EXPECT_EQ(copies_of([&] {
              once(add, inout(w)), once(add, inout(w));  // two regions
              Region r({.scope = Scope(there)});
              for (int i = 0; i < 10; ++i) r.spawn(add, inout(w));  // a chain of tasks
              r.wait();
              EXPECT_EQ(w.to_vector<float>(), Floats(256, 13));
            }),
            (Copied{one, one}))
      << "32: for any number of tasks";
  Array fresh = Array::empty({256}, DType::f32, home);
  EXPECT_EQ(copies_of([&] { once([](Array& v) { v.fill(7); }, out(fresh)); }), (Copied{0, 0}))
      << "out: no copy to the device";
  EXPECT_EQ(fresh.to_vector<float>(), Floats(256, 7));
}

TEST_P(OnEveryDevice, ReplicasAreFreedWithTheArray) {
  const Device there = GetParam();
  Array x = on(home, {1 << 16}, 1);
  std::weak_ptr<Storage> copy;
  {
    Region r({.scope = Scope(there)});
    r.spawn([&](Array& v) { v += 1, copy = v.view().storage; }, inout(x));
  }
  EXPECT_EQ(x.to_vector<float>().back(), 2);
  EXPECT_EQ(copy.expired(), false) << "kept for the next region";
  x = Array();
  EXPECT_TRUE(copy.expired());
}

TEST_P(OnEveryDevice, ProductsCopyEachTileOncePerDevice) {
  const std::vector<Device> devices = four();
  const Scope scope(devices);
  constexpr std::int64_t m = 5, n = 5, k = 4, side = 3;
  const BlockArray a = BlockArray::random_uniform({m * side, k * side}, {side, side}, 1, scope),
                   b = BlockArray::random_uniform({k * side, n * side}, {side, side}, 2, scope);
  BlockArray c = BlockArray::zeros({m * side, n * side}, {side, side}, DType::f32, scope);
  for (const Tile& t : a.tiles()) t.array().eval();
  std::set<std::tuple<char, Shape, Device>> needed;  // a tile, and another device that reads it
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t p = 0; p < k; ++p) {
        const Device at = c.device_of(i, j);
        if (a.device_of(i, p) != at) needed.insert({'a', {i, p}, at});
        if (b.device_of(p, j) != at) needed.insert({'b', {p, j}, at});
      }
  const auto multiply = [](const Array& x, const Array& y, Array& z) { multiply_into(z, x, y); };
  const auto all_products = [&] {
    Region r;
    for (std::int64_t p = 0; p < k; ++p)
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          r.spawn({.scope = c.device_of(i, j)}, multiply, in(a.tile(i, p)), in(b.tile(p, j)), inout(c.tile(i, j)));
    r.wait();
  };
  EXPECT_EQ(copies_of(all_products), (Copied{needed.size(), 0}));
  EXPECT_EQ(copies_of(all_products), (Copied{0, 0})) << "the replicas are still valid";
  const Array expected = 2 * matmul(a.gather(home), b.gather(home));
  EXPECT_LT(max(abs(c.gather(home) - expected)).item<float>(), 1e-4f);
  // After a write, only the written tile is copied again.
  a.tile(0, 0).array().slice(0, 0, 1).fill(0);
  std::uint64_t again = 0;
  for (const auto& [array, index, device] : needed) again += array == 'a' && index == Shape{0, 0} ? 1 : 0;
  EXPECT_EQ(copies_of(all_products), (Copied{again, 0}));
}

}  // namespace
}  // namespace tessera
