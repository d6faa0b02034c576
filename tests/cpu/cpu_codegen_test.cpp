// SPDX-License-Identifier: Apache-2.0
// Kernels compiled by the code-generation module for all targets that this machine can run. Compares the results with
// the interpreter.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>

#include "tests/cpu/cpu_benchmark_kernels.h"
#include "tests/cpu/cpu_compare.h"
#include "tests/device/limit_memory.h"
#include "tests/support/run_in_child.h"

#include "tessera/device/driver.h"

namespace tessera::testing {
namespace {

using namespace ir;

class CpuCodegen : public ::testing::Test {
 protected:
  std::mt19937 random{test_seed()};
  std::vector<float> reals(std::size_t n, float low = -2, float high = 2) {
    std::uniform_real_distribution<float> d(low, high);
    std::vector<float> out(n);
    for (float& v : out) v = d(random);
    return out;
  }
  template <class T = std::int32_t>
  std::vector<T> integers(std::size_t n, std::int64_t low, std::int64_t high) {
    std::uniform_int_distribution<std::int64_t> d(low, high);
    std::vector<T> out(n);
    for (T& v : out) v = static_cast<T>(d(random));
    return out;
  }
};

using test::in;
using test::out;
using test::product_q8;
using test::register_tiled_product;
using test::saxpy;
using test::softmax;
using test::tiled_product;

TEST_F(CpuCodegen, DriverUsesCodeGenerationModule) {
  Cpu cpu;
  EXPECT_EQ(cpu.info().reason, "");
  EXPECT_NE(cpu.info().driver_version.find("LLVM"), std::string::npos) << cpu.info().driver_version;
  EXPECT_EQ(cpu.info().kind, DeviceKind::cpu);
  EXPECT_GT(cpu.info().total_memory, 0u);
  EXPECT_GE(cpu.info().compute_units, 1u);
#if defined(__x86_64__)
  EXPECT_GE(cpu_targets().size(), 2u);
#endif
}

TEST_F(CpuCodegen, MapKernelsOfAllSizesMatchInterpreter) {
  const Function f = saxpy();
  for (std::uint64_t n = 1; n <= 70; n += n < 34 ? 1 : 4)
    expect_same(f, {n, 1, 1}, {memory(reals(n)), memory(reals(n)), number(2.5f)}, {1e-6, 1e-6});
}

TEST_F(CpuCodegen, MultidimensionalMapKernelsMatchInterpreter) {
  const Function f = map_kernel("transposed", [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto i = global_id(0), j = global_id(1), k = global_id(2);
    auto at = (k * extent(1) + j) * extent(0) + i;
    y.store((k * extent(0) + i) * extent(1) + j, x.load(at) * 3 + cast(DType::i32, i - j * 2 + k * 5));
  });
  for (std::array<std::uint64_t, 3> s :
       {std::array<std::uint64_t, 3>{1, 1, 1}, {3, 5, 7}, {17, 4, 1}, {64, 3, 2}, {1, 100, 3}, {33, 1, 9}}) {
    const std::size_t n = s[0] * s[1] * s[2];
    expect_same(f, s, {memory(integers(n, -1000, 1000)), memory(integers(n, 0, 9))});
  }
}

TEST_F(CpuCodegen, LargeMapKernelsRunOnSeveralThreads) {
  const std::size_t n = 1'000'003;
  auto x = reals(n), y = reals(n), before = y;
  Cpu cpu;
  cpu.call().buffer(x).buffer(y).scalar(0.5f).run(saxpy(), {n, 1, 1});
  for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], 0.5f * x[i] + before[i], 1e-6) << i;
}

TEST_F(CpuCodegen, StoresAreVisibleThroughAliasedBuffers) {
  Cpu cpu;
  for (std::size_t n : {1u, 16u, 45u}) {
    auto x = reals(n), before = x;
    cpu.call().buffer(x).same_as(0).scalar(2.0f).run(saxpy(), {n, 1, 1}, Variant{.noalias = false});
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(x[i], 3 * before[i], 1e-6);
  }
  // A store to one buffer must be visible to later loads through the other buffer, even if all threads load the same
  // index.
  const Function f = block_kernel("through_two_names", {48}, [] {
    auto a = in("a", DType::i32), b = out("b", DType::i32);
    auto t = thread_id();
    b.store(t, cast(DType::i32, t * 7));
    barrier();
    Variable v(DType::i32, a.load(47 - t));
    barrier();
    b.store(t, v.get() + a.load(5));
  });
  std::vector<std::int32_t> a(48, -1);
  cpu.call().buffer(a).same_as(0).run(f, {1, 1, 1}, Variant{.noalias = false});
  // After the last barrier, element 5 has a race: other threads load either 35 or the result of thread 5.
  for (int t = 0; t < 48; ++t)
    EXPECT_TRUE(a[std::size_t(t)] == (47 - t) * 7 + 35 || a[std::size_t(t)] == (47 - t) * 7 + 42 * 7 + 35) << t;
}

TEST_F(CpuCodegen, KernelsWith64BitIndicesMatchInterpreter) {
  const Function f = map_kernel("wide", [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto i = global_id();
    y.store(i, x.load(extent() - 1 - i) + cast(DType::i32, i * i));
  });
  expect_same(f, {50, 1, 1}, {memory(integers(50, -9, 9)), memory(integers(50, 0, 1))}, {}, Variant{.index64 = true});
  expect_same(f, {50, 1, 1}, {memory(integers(50, -9, 9)), memory(integers(50, 0, 1))});
}

TEST_F(CpuCodegen, BlockReductionsMatchInterpreter) {
  for (std::uint32_t size : {1u, 3u, 16u, 37u, 64u, 256u, 1000u}) {
    const Function f = block_kernel("block_sum", {size}, [] {
      auto x = in("x"), y = out("y");
      auto i = global_id();
      auto v = x.load_if(i < x.size(), i, 0.0f);
      auto sum = block_sum(v), most = block_max(v), least = block_min(v);
      if_(thread_id() == 0, [&] {
        y.store(block_id() * 3, sum);
        y.store(block_id() * 3 + 1, most);
        y.store(block_id() * 3 + 2, least);
      });
    });
    const std::size_t n = 3 * size - size / 2;
    expect_same(f, {3, 1, 1}, {memory(reals(n)), memory(reals(9))}, {1e-5, 1e-4});
  }
}

TEST_F(CpuCodegen, TiledMatrixProductsMatchInterpreter) {
  for (std::uint32_t tile : {4u, 5u, 8u, 16u}) {
    const std::size_t n = tile * 4;
    expect_same(tiled_product(tile), {4, 4, 1},
                {memory(reals(n * n)), memory(reals(n * n)), memory(reals(n * n)), index_number(std::int64_t(n))},
                {1e-5, 1e-4});
  }
  const std::size_t n = 128;
  expect_same(register_tiled_product(), {2, 2, 1},
              {memory(reals(n * n)), memory(reals(n * n)), memory(reals(n * n)), index_number(std::int64_t(n))},
              {1e-5, 1e-4});
}

TEST_F(CpuCodegen, SoftmaxMatchesInterpreter) {
  for (std::uint32_t threads : {16u, 50u, 64u, 256u})
    for (std::size_t n : {1u, 15u, 64u, 300u})
      expect_same(softmax(threads), {3, 1, 1},
                  {memory(reals(3 * n, -9, 9)), memory(reals(3 * n)), index_number(std::int64_t(n))}, {1e-5, 1e-7});
}

TEST_F(CpuCodegen, BarriersInUniformControlFlowMatchInterpreter) {
  const Function f = block_kernel("uniform_control", {40}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto n = scalar_param("n", DType::i32);
    auto s = shared(DType::i32, 40);
    auto t = thread_id();
    auto mine = x.load(global_id());  // live until the kernel ends
    auto product = mine * 3 + cast(DType::i32, t);
    Variable sum(DType::i32, 0), rounds(DType::i32, 0);
    auto exchange = [&](Value v, int by) {
      s.store(t, v);
      barrier();
      sum.set(sum.get() + s.load((t + by) % 40));
      barrier();
    };
    for_(0, n, [&](Value i) {
      if_(
          i % 2 == 0, [&] { exchange(product + i, 1); }, [&] { for_(0, i, [&](Value j) { exchange(mine - j, 7); }); });
    });
    while_([&] { return rounds.get() < n; },
           [&] {
             rounds.set(rounds.get() + 2);
             exchange(sum.get(), 3);
           });
    if_(n > 100, [&] { exchange(mine, 11); });
    auto whole = block_sum(sum.get() % 1000);
    Variable left(DType::i32, abs(whole) % 5);
    while_([&] { return left.get() > 0; },
           [&] {
             left.set(left.get() - 1);
             exchange(product, 5);
           });
    y.store(global_id(), sum.get() + whole + mine);
  });
  for (std::int32_t n : {0, 1, 2, 5})
    expect_same(f, {2, 1, 1}, {memory(integers(80, -100, 100)), memory(integers(80, 0, 0)), number(n)});
}

TEST_F(CpuCodegen, TripCountOfBarrierLoopCanBeALocalVariable) {
  const Function f = block_kernel("kept_condition", {64}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto s = shared(DType::i32, 64);
    Variable n(DType::i32, 0);
    for_(0, 4, [&](Value i) { n.set(n.get() + x.load(i)); });  // contains no barrier, so it runs once per chunk
    for_(0, cast(DType::index, n.get()), [&](Value i) {
      s.store(thread_id(), cast(DType::i32, i + thread_id()));
      barrier();
      y.store(thread_id(), y.load(thread_id()) + s.load(63 - thread_id()));
      barrier();
    });
  });
  expect_same(f, {1, 1, 1}, {memory(std::vector<std::int32_t>{1, 2, 0, 3}), memory(integers(64, 0, 5))});
}

TEST_F(CpuCodegen, DivergentControlFlowMatchesInterpreter) {
  const Function f = map_kernel("collatz", [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto i = global_id();
    Variable v(DType::i32, x.load(i)), steps(DType::i32, 0);
    while_([&] { return v.get() > 1; },
           [&] {
             if_(
                 v.get() % 2 == 0, [&] { v.set(v.get() / 2); }, [&] { v.set(3 * v.get() + 1); });
             steps.set(steps.get() + 1);
             if_(steps.get() > 60, [&] {
               v.set(0);
               if_(i % 3 == 0, [&] { steps.set(-steps.get()); });
             });
           });
    for_(i, cast(DType::index, x.load(i)), 3,
         [&](Value j) { for_(j, j + i % 4, [&](Value k) { steps.set(steps.get() + cast(DType::i32, k)); }); });
    y.store(i, steps.get());
  });
  expect_same(f, {77, 1, 1}, {memory(integers(77, 0, 200)), memory(integers(77, 0, 0))});
}

TEST_F(CpuCodegen, EarlyReturnsMatchInterpreter) {
  const Function f = block_kernel("guarded", {64}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto i = global_id();
    if_(i >= y.size(), [] { return_(); });
    for_(0, 10, [&](Value k) {
      if_(x.load(i) == cast(DType::i32, k), [&] {
        y.store(i, cast(DType::i32, k * 100));
        return_();
      });
    });
    y.store(i, -1);
  });
  for (std::size_t n : {1u, 63u, 64u, 65u, 150u})
    expect_same(f, {3, 1, 1}, {memory(integers(n, 0, 15)), memory(integers(n, 7, 7))});
}

// Without a workaround, LLVM 16 aborts with "Cannot emit physreg copy instruction" when it widens these vectors.
TEST_F(CpuCodegen, WidensVectorsSelectedBy64BitComparisons) {
  for (const DType compared : {DType::f64, DType::i64, DType::f32})
    for (const DType selected : {DType::i8, DType::i16, DType::i32, DType::u32}) {
      const Function f = map_kernel("selected", [&] {
        auto c = in("c", compared), x = in("x", selected), y = in("y", selected), z = out("z", DType::i64),
             narrow = out("narrow", selected);
        auto i = global_id();
        const ir::Value chosen = select(c.load(i) == cast(compared, literal(DType::i32, 1)), x.load(i), y.load(i));
        narrow.store(i, chosen);
        z.store(i, cast(DType::i64, chosen));
      });
      const auto of = [&](DType t, std::size_t n) {
        switch (t) {
          case DType::f64: {
            std::vector<double> out;
            for (const std::int32_t v : integers(n, 0, 2)) out.push_back(v);
            return memory(out);
          }
          case DType::f32: return memory(reals(n));
          case DType::i64: return memory(integers<std::int64_t>(n, 0, 2));
          case DType::i8: return memory(integers<std::int8_t>(n, -100, 100));
          case DType::i16: return memory(integers<std::int16_t>(n, -100, 100));
          case DType::u32: return memory(integers<std::uint32_t>(n, 0, 4000000000));
          default: return memory(integers(n, -100, 100));
        }
      };
      for (std::size_t n : {1u, 37u})
        expect_same(f, {n, 1, 1},
                    {of(compared, n), of(selected, n), of(selected, n), of(DType::i64, n), of(selected, n)});
    }
}

TEST_F(CpuCodegen, LocalArraysMatchInterpreter) {
  const Function f = block_kernel("local_arrays", {24}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto a = local_array(DType::i32, 9);  // zero at the start, and live across the barrier
    auto u = local_array(DType::i32, 4);  // equal in all threads
    auto flags = local_array(DType::boolean, 5);
    auto i = global_id();
    for_(0, 4, [&](Value k) { u.store(k, cast(DType::i32, k * k)); });
    for_(0, 5, [&](Value k) { a.store((i + k) % 9, a.load((i + k * 2) % 9) + x.load(i) + cast(DType::i32, k)); });
    flags.store(i % 5, x.load(i) > 0);
    if_(x.load(i) > 5, [&] { a.store(cast(DType::index, x.load(i)) % 9, 1000); });
    barrier();
    Variable sum(DType::i32, 0);
    for_(0, 9, [&](Value k) { sum.set(sum.get() * 3 + a.load(k)); });
    sum.set(sum.get() + u.load(i % 4) + u.load(2));
    auto one = literal(DType::i32, 1), zero = literal(DType::i32, 0);
    y.store(i, sum.get() + select(flags.load(cast(DType::index, abs(x.load(i))) % 5), one, zero));
  });
  expect_same(f, {3, 1, 1}, {memory(integers(72, -10, 10)), memory(integers(72, 0, 0))});
}

TEST_F(CpuCodegen, LanesWithDifferentTripCountsShareOneCounter) {
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  const Function f = map_kernel("rounds", [] {
    auto n = in("n", DType::i32), end = in("end", DType::i32), y = out("y", DType::i32);
    auto row = local_array(DType::i32, 12);
    auto i = global_id();
    for_(literal(DType::i32, 0), n.load(i), [&](Value k) {
      auto at = cast(DType::index, k);
      row.store(at + 1, row.load(at) * 3 + k + 1);
    });
    Variable sum(DType::i32, 0);
    for_(0, 12, [&](Value k) { sum.set(sum.get() * 5 + row.load(k)); });
    // These loops end just before the counter wraps.
    for_(literal(DType::i32, largest - 6), end.load(i), [&](Value k) { sum.set(sum.get() * 7 + (k & 15)); });
    for_(literal(DType::u32, 0xfffffff8u), bitcast(DType::u32, end.load(i) - largest - 1),
         [&](Value k) { sum.set(sum.get() * 7 + cast(DType::i32, k & 15u)); });
    y.store(i, sum.get());
  });
  expect_same(f, {300, 1, 1},
              {memory(integers(300, 0, 11)), memory(integers(300, largest - 8, largest)), memory(integers(300, 0, 0))});
  const std::string text = Cpu().compile(f)->source();
  for (const char* each : {"gather", "scatter"})
    EXPECT_EQ(text.find(each), std::string::npos) << "all lanes must use one element of the local array: " << text;
}

TEST_F(CpuCodegen, BlockScansMatchInterpreter) {
  for (std::uint32_t size : {1u, 16u, 40u, 300u}) {
    const Function f = block_kernel("scans", {size}, [] {
      auto x = in("x", DType::i32), y = out("y", DType::i32), z = out("z", DType::f32);
      auto i = global_id();
      auto before = block_scan(x.load(i), true), up_to = block_scan(x.load(i) * 2, false);
      y.store(i, before * 7 + up_to);
      barrier();
      z.store(i, block_scan(cast(DType::f32, x.load(i)), false) + cast(DType::f32, before));
    });
    expect_same(f, {2, 1, 1},
                {memory(integers(2 * size, -9, 9)), memory(integers(2 * size, 0, 0)), memory(reals(2 * size))},
                {1e-6, 1e-5});
  }
}

TEST_F(CpuCodegen, AtomicsMatchInterpreter) {
  const Function f = block_kernel("atomics", {48}, [] {
    auto x = in("x", DType::i32), h = out("h", DType::i32), total = out("total", DType::i32),
         order = out("order", DType::i32);
    auto wide = out("wide", DType::i64), real = out("real", DType::f32), bits = out("bits", DType::u32);
    auto s = shared(DType::i32, 5);
    auto t = thread_id(), i = global_id();
    if_(t < 5, [&] { s.store(t, 0); });
    barrier();
    auto v = x.load(i);
    h.atomic(AtomicOp::add, cast(DType::index, v & 7), 1);
    s.atomic(AtomicOp::max, cast(DType::index, v & 3), v);
    total.atomic(AtomicOp::add, 0, v);
    if_(v > 20, [&] { total.atomic(AtomicOp::min, 1, v); });
    total.atomic(AtomicOp::max, 2, v);
    wide.atomic(AtomicOp::add, 0, cast(DType::i64, v) * 1000000007);
    real.atomic(AtomicOp::add, 0, cast(DType::f32, v));
    real.atomic(AtomicOp::max, 1, cast(DType::f32, v));
    real.atomic(AtomicOp::add, cast(DType::index, v & 3) + 2, 0.5f);
    bits.atomic(AtomicOp::max, 0, cast(DType::u32, v) << 20);
    bits.atomic(AtomicOp::min, 1, cast(DType::u32, v) << 20);
    if_(v > 20, [&] {
      auto u = cast(DType::u32, v);
      bits.atomic(AtomicOp::and_, 2, u | 0xf0f00000u);
      bits.atomic(AtomicOp::or_, 3, u & 0x15u);
      bits.atomic(AtomicOp::xor_, 4, u);
    });
    order.store(i, s.atomic(AtomicOp::add, 4, 1) * 0 + order.load(i));
    total.atomic_cas(cast(DType::index, v & 3) + 4, 0, 5);
    if_(t == 7, [&] { total.atomic(AtomicOp::exchange, 3, 77); });
    barrier();
    if_(t < 5, [&] { order.store(i, s.load(t)); });
  });
  expect_same(f, {5, 1, 1},
              {memory(integers(240, -100, 100)), memory(integers(8, 0, 0)), memory(integers(8, 0, 0)),
               memory(integers(240, 0, 0)), memory(integers<std::int64_t>(1, 5, 5)), memory(std::vector<float>(6, 0)),
               memory(std::vector<std::uint32_t>{0, ~0u, ~0u, 0, 0})},
              {1e-5, 1e-3});
  // The old values that the atomic increments return must be a permutation.
  const Function g = map_kernel("tickets", [] {
    auto next = out("next", DType::i32), mine = out("mine", DType::i32);
    mine.store(global_id(), next.atomic(AtomicOp::add, 0, 1));
  });
  for (Cpu* cpu : cpu_targets()) {
    std::vector<std::int32_t> next(1, 0), mine(30'000, -1);
    cpu->call().buffer(next).buffer(mine).run(g, {mine.size(), 1, 1});
    EXPECT_EQ(next[0], 30'000);
    std::sort(mine.begin(), mine.end());
    for (int i = 0; i < 30'000; ++i) ASSERT_EQ(mine[std::size_t(i)], i);
  }
}

TEST_F(CpuCodegen, SubgroupOperationsMatchInterpreter) {
  for (std::uint32_t size : {16u, 64u, 100u, 5u}) {
    const Function f = block_kernel("subgroups", {size}, [] {
      auto x = in("x", DType::i32), y = out("y", DType::i32);
      auto i = global_id();
      auto v = x.load(i);
      Variable sum(DType::i32, subgroup_sum(v) + subgroup_max(v) * 3 + subgroup_min(v) * 5);
      auto add = [&](Value a) { sum.set(sum.get() * 31 + a); };
      add(cast(DType::i32, lane_id()) + cast(DType::i32, subgroup_id()) * 100 + cast(DType::i32, subgroup_size()));
      add(cast(DType::i32, subgroup_count()));
      add(subgroup(SubgroupOp::broadcast, v, 0));
      add(subgroup(SubgroupOp::inclusive_sum, v));
      add(subgroup(SubgroupOp::exclusive_sum, v));
      add(cast(DType::i32, subgroup(SubgroupOp::any, v > 90)));
      add(cast(DType::i32, subgroup(SubgroupOp::all, v > -101)));
      y.store(i, sum.get());
    });
    expect_same(f, {2, 1, 1}, {memory(integers(2 * size, -100, 100)), memory(integers(2 * size, 0, 0))});
  }
  // The last subgroup of a block may have lanes without a thread. A shuffle from such a lane returns the thread's own
  // value.
  for (std::uint32_t size : {64u, 100u, 21u, 3u}) {
    const Function g = block_kernel("shuffles", {size}, [] {
      auto x = in("x", DType::i32), y = out("y", DType::i32), z = out("z", DType::f32);
      auto i = global_id();
      auto v = x.load(i);
      Variable sum(DType::i32, subgroup(SubgroupOp::shuffle_xor, v, 1));
      auto add = [&](Value a) { sum.set(sum.get() * 31 + a); };
      add(subgroup(SubgroupOp::shuffle, v, (lane_id() * 3 + 1) % subgroup_size()));
      add(subgroup(SubgroupOp::shuffle_up, v, 2));
      add(subgroup(SubgroupOp::shuffle_down, v, 3));
      for (int lane : {0, 2, 6, 130}) add(subgroup(SubgroupOp::broadcast, v, lane));
      y.store(i, sum.get());
      z.store(i, subgroup(SubgroupOp::shuffle_xor, cast(DType::f32, v), 2) + subgroup_sum(cast(DType::f32, v)));
    });
    expect_same(g, {2, 1, 1},
                {memory(integers(2 * size, -100, 100)), memory(integers(2 * size, 0, 0)), memory(reals(2 * size))},
                {1e-6, 1e-4});
  }
}

TEST_F(CpuCodegen, ThreeDimensionalBlocksMatchInterpreter) {
  for (std::array<std::uint32_t, 3> size :
       {std::array<std::uint32_t, 3>{8, 8, 1}, {4, 4, 4}, {16, 2, 3}, {5, 7, 2}, {1, 33, 1}, {2, 1, 40}, {32, 8, 1}}) {
    const Function f = block_kernel("ids", size, [] {
      auto y = out("y", DType::i32);
      auto at = (global_id(2) * grid_size(1) + global_id(1)) * grid_size(0) + global_id(0);
      auto v = thread_id(0) + thread_id(1) * 100 + thread_id(2) * 10000 + block_id(0) * 7 + block_id(1) * 11 +
               block_id(2) * 13;
      y.store(at, cast(DType::i32, v + block_count(0) * 1000 + block_count(1) * 10000 + block_size(1)));
    });
    const std::size_t n = size[0] * size[1] * size[2] * 3 * 2 * 2;
    expect_same(f, {3, 2, 2}, {memory(integers(n, 0, 0))});
  }
}

TEST_F(CpuCodegen, PrintWritesOneLinePerActiveThread) {
  const Function f = map_kernel("greets", [] {
    auto x = in("x");
    if_(global_id() % 2 == 1, [&] {
      print("{} has {} of {}", {global_id(), x.load(global_id()), x.load(global_id()) > 1.0f});
    });
  });
  Cpu cpu;
  std::vector<float> x = {0.5f, 1.5f, 2.5f, -3};
  ::testing::internal::CaptureStdout();
  cpu.call().buffer(x).run(f, {4, 1, 1});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "1 has 1.5 of 1\n3 has -3 of 0\n");
}

TEST_F(CpuCodegen, ProductWith8BitWeightsMatchesInterpreter) {
  const std::size_t rows = 64, blocks = 5;
  std::vector<half> scales(rows * blocks);
  for (half& h : scales) h = half(reals(1, 0, 0.1f)[0]);
  std::vector<std::uint32_t> w(rows * blocks * 8), x(blocks * 8);
  for (auto* v : {&w, &x})
    for (auto& e : *v) e = static_cast<std::uint32_t>(random());
  expect_same(product_q8(), {rows / 16, 1, 1},
              {memory(w), memory(x), memory(scales), memory(reals(blocks)), memory(reals(rows)), index_number(blocks)},
              {1e-5, 1e-3});
}

TEST_F(CpuCodegen, GeneratedCodeUsesVectorLoads) {
  Cpu cpu;
  const std::string lanes = "<" + std::to_string(cpu.info().can.subgroup_widths[0]) + " x ";
  for (const Function& f : {saxpy(), softmax(256), tiled_product(16), product_q8()}) {
    const std::string text = cpu.compile(f)->source();
    const bool bytes = f.name == "product_q8";  // without a dot4 instruction, 16-bit elements are loaded
    EXPECT_TRUE(text.find("load " + lanes + (bytes ? "i32>" : "float>")) != std::string::npos ||
                (bytes && (text.find("x i16>, ptr") != std::string::npos || text.find("x i8>, ptr") != text.npos)))
        << f.name << "\n"
        << text;
    EXPECT_EQ(text.find("gather"), std::string::npos) << f.name << "\n" << text;
  }
}

TEST_F(CpuCodegen, UnrollsLoopsOnlyOnRequest) {
  Cpu cpu;
  const auto loads = [&](std::optional<Unroll> unroll) {
    const std::string text =
        cpu.compile(block_kernel("sums", {8, 1, 1},
                                 [&] {
                                   const BufferRef x = in("x"), y = out("y");
                                   const Variable sum(DType::f32, 0.0f);
                                   const auto add = [&](Value k) { sum.set(sum.get() + x.load(thread_id() + k * 8)); };
                                   for_(0, x.size() / 8, add, unroll);
                                   y.store(global_id(), sum.get());
                                 }))
            ->source();
    std::size_t n = 0;
    for (std::size_t at = text.find("= load <"); at != text.npos; at = text.find("= load <", at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(loads({}), loads(Unroll{1}));
  EXPECT_GE(loads(Unroll{8}), loads({}) + 8);
}

#if defined(__x86_64__)  // qemu-user does not limit memory
TEST_F(CpuCodegen, SourceThrowsOutOfMemoryIfLlvmNeedsTooMuchMemory) {
  const std::string said = test::run_in_child({}, [] {
    Cpu cpu;
    const auto kernel = cpu.compile(saxpy());
    test::leave_memory(std::uint64_t{1} << 20);
    try {
      return "source returned: " + kernel->source();
    } catch (const OutOfMemory& e) {
      return std::string(e.what());
    }
  });
  EXPECT_NE(said.find("no memory left for LLVM"), std::string::npos) << said;
}
#endif

// (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 if the product is not rounded, and 0 if it is rounded.
TEST_F(CpuCodegen, ExactKernelsAreNotContracted) {
  Function f = saxpy();
  f.exact = true;
  expect_same(f, {100, 1, 1}, {memory(reals(100)), memory(reals(100)), number(2.5f)}, {0, 0});
  const float x = 1 + 0x1p-12f;
  expect_same(f, {40, 1, 1},
              {memory(std::vector<float>(40, x)), memory(std::vector<float>(40, -(1 + 0x1p-11f))), number(x)}, {0, 0});
  Cpu cpu;
  EXPECT_NE(cpu.compile(saxpy())->source().find("contract"), std::string::npos);
  EXPECT_EQ(cpu.compile(f)->source().find("contract"), std::string::npos);
}

TEST_F(CpuCodegen, ReportsInvalidTargetsMissingModulesAndOversizedAllocations) {
  auto driver = make_cpu_driver();
  // LLVM knows the second target, but it is a 32-bit processor.
  for (const char* target : {"pentium-9000", "pentium"}) {
    ::setenv("TESSERA_CPU_TARGET", target, 1);
    const auto report = driver->enumerate();
    EXPECT_NE(report.reason.find("TESSERA_CPU_TARGET = " + std::string(target) + ")"), std::string::npos)
        << report.reason;
    EXPECT_THROW(driver->open(0), DeviceError);
  }
  ::unsetenv("TESSERA_CPU_TARGET");
  EXPECT_EQ(driver->enumerate().state, DeviceState::enumerated);
  EXPECT_THROW(driver->open(1), DeviceError);
  const auto said_without = [&](const char* module) {
    ::setenv("TESSERA_CODEGEN_LIBRARY", module, 1);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(driver->open(0)->info().driver_version, "reference interpreter");
    EXPECT_EQ(driver->enumerate().file, "") << "a missing module must not be reported";
    ::unsetenv("TESSERA_CODEGEN_LIBRARY");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_without("none"), "") << "the interpreter was requested";
  const std::string warning = said_without("/nonexistent/module.so");
  EXPECT_NE(warning.find("warning: cpu:0: the code-generation module was not found: /nonexistent/module.so"),
            warning.npos)
      << warning;
  EXPECT_NE(warning.find("cpu runs on the reference interpreter, which is slow"), warning.npos) << warning;
  auto device = driver->open(0);
  EXPECT_THROW(device->allocate(~std::size_t{0} / 2, MemoryKind::device), OutOfMemory);
  const Allocation fine = device->allocate(100, MemoryKind::device);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(fine.host) % 64, 0u);
  device->release(fine);
}

}  // namespace
}  // namespace tessera::testing
