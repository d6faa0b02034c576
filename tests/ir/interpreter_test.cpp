// SPDX-License-Identifier: Apache-2.0
// Runs kernels of all kinds in the interpreter and compares the results with plain C++.
#include "tests/ir/interpreter_helpers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

namespace tessera::ir {
namespace {

using namespace test;
using Shape = std::array<std::uint64_t, 3>;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Function saxpy_kernel() {
  return map_kernel("saxpy", [] {
    BufferRef x = in("x"), y = out("y");
    Value a = scalar_param("a", DType::f32);
    Value i = global_id();
    y.store(i, a * x.load(i) + y.load(i));
  });
}

TEST(Interpreter, ComputesSaxpyForSizesNearTheRowLength) {
  std::mt19937_64 rng(test_seed());
  for (std::size_t n : {0, 1, 2, 63, 64, 65, 255, 256, 257, 1000, 70000}) {
    std::vector<float> x = random_floats(n, rng), y = random_floats(n, rng), expected = y;
    for (std::size_t i = 0; i < n; ++i) expected[i] = 1.5f * x[i] + y[i];
    run(saxpy_kernel(), {n, 1, 1}, {arg(x), arg(y), scalar_arg(1.5f)});
    EXPECT_EQ(y, expected) << n;
  }
}
TEST(Interpreter, ComputesSaxpyInPlace) {
  std::vector<float> x(300);
  std::iota(x.begin(), x.end(), 0.f);
  run(saxpy_kernel(), {300, 1, 1}, {arg(x), arg(x), scalar_arg(2.f)});
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 3.f * static_cast<float>(i));
  EXPECT_TRUE(findings(saxpy_kernel(), {300, 1, 1}, {arg(x), arg(x), scalar_arg(2.f)}).empty());
}

TEST(Interpreter, RunsThreeDimensionalMapKernels) {
  const Function fn = map_kernel("ids", [] {
    BufferRef y = out("y", DType::i32);
    Value i = (global_id(2) * extent(1) + global_id(1)) * grid_size(0) + global_id(0);
    y.store(i, cast(DType::i32, global_id(0) + 100 * global_id(1) + 10000 * global_id(2)));
  });
  for (Shape s : {Shape{7, 5, 3}, Shape{1, 300, 2}, Shape{300, 1, 2}, Shape{2, 1, 300}}) {
    std::vector<std::int32_t> y(s[0] * s[1] * s[2], -1);
    run(fn, s, {arg(y)});
    for (std::uint64_t z = 0, k = 0; z < s[2]; ++z)
      for (std::uint64_t r = 0; r < s[1]; ++r)
        for (std::uint64_t x = 0; x < s[0]; ++x, ++k) ASSERT_EQ(y[k], static_cast<int>(x + 100 * r + 10000 * z));
  }
}

TEST(Interpreter, ComputesBlockIndicesInThreeDimensions) {
  const Function fn = block_kernel("ids", {4, 3, 2}, [] {
    BufferRef y = out("y", DType::i32);
    Value linear = (global_id(2) * grid_size(1) + global_id(1)) * grid_size(0) + global_id(0);
    Value inside = (thread_id(2) * block_size(1) + thread_id(1)) * block_size(0) + thread_id(0);
    Value block = (block_id(2) * block_count(1) + block_id(1)) * block_count(0) + block_id(0);
    y.store(linear, cast(DType::i32, block * 1000 + inside));
  });
  std::vector<std::int32_t> y(8 * 9 * 4, -1);
  run(fn, {2, 3, 2}, {arg(y)});
  for (int z = 0; z < 4; ++z)
    for (int r = 0; r < 9; ++r)
      for (int x = 0; x < 8; ++x) {
        const int block = (z / 2 * 3 + r / 3) * 2 + x / 4, inside = (z % 2 * 3 + r % 3) * 4 + x % 4;
        ASSERT_EQ(y[static_cast<std::size_t>((z * 9 + r) * 8 + x)], block * 1000 + inside);
      }
}

TEST(Interpreter, ComputesBlockSumsAndScans) {
  std::mt19937_64 rng(test_seed());
  const Function fn = block_kernel("sums", {100, 1, 1}, [] {
    BufferRef x = in("x", DType::i32), sum = out("sum", DType::i32), inclusive = out("inclusive", DType::i32),
              exclusive = out("exclusive", DType::i32), least = out("least", DType::i32),
              bits = out("bits", DType::i32);
    Value i = global_id(), v = x.load(i);
    sum.store(i, block_sum(v));
    inclusive.store(i, block_scan(v, false));
    exclusive.store(i, block_scan(v, true));
    least.store(i, block_min(v) * block_max(v));
    bits.store(i, block_reduce(ReduceOp::and_, v) + block_reduce(ReduceOp::or_, v));
  });
  std::vector<std::int32_t> x(300), sum(300), inclusive(300), exclusive(300), least(300), bits(300);
  for (auto& v : x) v = static_cast<std::int32_t>(rng() % 1000) - 500;
  run(fn, {3, 1, 1}, {arg(x), arg(sum), arg(inclusive), arg(exclusive), arg(least), arg(bits)});
  for (std::size_t b = 0; b < 300; b += 100) {
    int total = 0, low = x[b], high = x[b], all = -1, any = 0;
    for (std::size_t i = b; i < b + 100; ++i)
      low = std::min(low, x[i]), high = std::max(high, x[i]), all &= x[i], any |= x[i];
    for (std::size_t i = b; i < b + 100; ++i) {
      EXPECT_EQ(exclusive[i], total);
      total += x[i];
      EXPECT_EQ(inclusive[i], total);
      EXPECT_EQ(least[i], low * high);
      EXPECT_EQ(bits[i], all + any);
    }
    for (std::size_t i = b; i < b + 100; ++i) EXPECT_EQ(sum[i], total);
  }
}

constexpr std::int64_t tile = 16;
Function tiled_product() {
  return block_kernel("tiled_product", {tile, tile, 1}, [] {
    BufferRef a = in("a"), b = in("b"), c = out("c");
    Value m = scalar_param("m", DType::index), n = scalar_param("n", DType::index), k = scalar_param("k", DType::index);
    BufferRef as = shared(DType::f32, tile * tile), bs = shared(DType::f32, tile * tile);
    Value tx = thread_id(0), ty = thread_id(1), row = global_id(1), column = global_id(0);
    Variable sum(DType::f32, 0.f);
    for_(0, (k + (tile - 1)) / tile, [&](Value t) {
      Value ka = t * tile + tx, kb = t * tile + ty;
      as.store(ty * tile + tx, a.load_if(row < m && ka < k, row * k + ka, 0.f));
      bs.store(ty * tile + tx, b.load_if(kb < k && column < n, kb * n + column, 0.f));
      barrier();
      for_(0, tile, [&](Value j) { sum.set(fma(as.load(ty * tile + j), bs.load(j * tile + tx), sum.get())); });
      barrier();
    });
    if_(row < m && column < n, [&] { c.store(row * n + column, sum.get()); });
  });
}

TEST(Interpreter, ComputesTiledProductsWithPartialTiles) {
  std::mt19937_64 rng(test_seed());
  for (auto [m, n, k] : {std::array<std::size_t, 3>{16, 16, 16}, {33, 17, 50}, {1, 40, 5}, {64, 64, 64}}) {
    std::vector<float> a = random_floats(m * k, rng), b = random_floats(k * n, rng), c(m * n, nan);
    const Shape blocks = {(n + 15) / 16, (m + 15) / 16, 1};
    const auto index = [](std::size_t v) { return index_arg(static_cast<std::int64_t>(v)); };
    run(tiled_product(), blocks, {arg(a), arg(b), arg(c), index(m), index(n), index(k)});
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double expected = 0;
        for (std::size_t l = 0; l < k; ++l) expected += double(a[i * k + l]) * double(b[l * n + j]);
        ASSERT_NEAR(c[i * n + j], expected, 1e-5 * std::sqrt(double(k)) * 4) << i << " " << j;
      }
    EXPECT_TRUE(findings(tiled_product(), blocks, {arg(a), arg(b), arg(c), index(m), index(n), index(k)}).empty());
  }
}

// Control flow.

TEST(Interpreter, RunsNestedLoopsWithPerThreadBounds) {
  const Function fn = map_kernel("loops", [] {
    BufferRef y = out("y", DType::i32);
    Value i = cast(DType::i32, global_id());
    Variable sum(DType::i32, 0);
    for_(i % 5, i % 17, i % 3 + 1, [&](Value j) {
      for_(Operand(0), j, [&](Value k) {
        if_((j + k) % 2 == 0, [&] { sum.set(sum.get() + j * k); }, [&] { sum.set(sum.get() - i); });
      });
    });
    y.store(global_id(), sum.get());
  });
  std::vector<std::int32_t> y(500, -1);
  run(fn, {500, 1, 1}, {arg(y)});
  for (int i = 0; i < 500; ++i) {
    int sum = 0;
    for (int j = i % 5; j < i % 17; j += i % 3 + 1)
      for (int k = 0; k < j; ++k) sum += (j + k) % 2 == 0 ? j * k : -i;
    ASSERT_EQ(y[static_cast<std::size_t>(i)], sum) << i;
  }
}
TEST(Interpreter, EvaluatesForBoundsOnce) {
  const Function fn = map_kernel("once", [] {
    BufferRef y = out("y", DType::i32);
    Variable end(DType::i32, 3), rounds(DType::i32, 0);
    for_(Operand(0), end.get(), [&](Value) {
      end.set(end.get() + 10);
      rounds.set(rounds.get() + 1);
    });
    y.store(global_id(), rounds.get() * 1000 + end.get());
  });
  std::vector<std::int32_t> y(3);
  run(fn, {3, 1, 1}, {arg(y)});
  EXPECT_EQ(y, (std::vector<std::int32_t>{3033, 3033, 3033}));
}
TEST(Interpreter, ReturnEndsAThreadAnywhereInAKernel) {
  const Function fn = map_kernel("returns", [] {
    BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
    Value i = global_id();
    y.store(i, 1);
    if_(i % 5 == 0, [&] { return_(); });
    y.store(i, 2);
    for_(0, 10, [&](Value j) {
      if_(i % 7 == j, [&] {
        y.store(i, cast(DType::i32, j + 100));
        return_();
      });
      y.store(i, 3);
    });
    // Threads that have returned must not evaluate the condition again, because it would read out of bounds.
    Variable k(DType::i32, 0);
    while_([&] { return x.load(k.get()) >= 0; },
           [&] {
             k.set(k.get() + 1);
             if_(k.get() == cast(DType::i32, x.size()), [&] {
               y.store(i, 4);
               return_();
             });
           });
    y.store(i, 5);
  });
  for (const int stop : {-1, 3}) {
    std::vector<std::int32_t> x(10, 1), y(100, -1);
    if (stop >= 0) x[static_cast<std::size_t>(stop)] = -1;
    EXPECT_TRUE(findings(fn, {100, 1, 1}, {arg(x), arg(y)}).empty());
    for (int i = 0; i < 100; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i)], i % 5 == 0 ? 1 : i % 7 + 100) << i;
  }
  const Function loop = map_kernel("while_return", [] {
    BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
    Value i = global_id();
    Variable k(DType::i32, 0);
    while_([&] { return x.load(k.get()) > cast(DType::i32, i); },
           [&] {
             k.set(k.get() + 1);
             if_(k.get() == cast(DType::i32, x.size()), [&] {
               y.store(i, -2);
               return_();
             });
           });
    y.store(i, k.get());
  });
  std::vector<std::int32_t> x = {9, 8, 7, 6}, y(12, -1);
  EXPECT_TRUE(findings(loop, {12, 1, 1}, {arg(x), arg(y)}).empty());
  EXPECT_EQ(y, (std::vector<std::int32_t>{-2, -2, -2, -2, -2, -2, 3, 2, 1, 0, 0, 0}));
}
TEST(Interpreter, LocalsAreZeroInitialisedAndPrivate) {
  const Function fn = block_kernel("locals", {32, 1, 1}, [] {
    BufferRef y = out("y", DType::i32);
    BufferRef mine = local_array(DType::i32, 8);
    Value i = thread_id();
    Variable before(DType::i32, 0);
    for_(0, 8, [&](Value j) { before.set(before.get() + mine.load(j)); });
    for_(0, 8, [&](Value j) { mine.store((j + i) % 8, cast(DType::i32, j * 100 + i)); });
    y.store(global_id(), before.get() * 100000 + mine.load(3) + mine.load((i * 3) % 8));
  });
  std::vector<std::int32_t> y(64, -1);
  run(fn, {2, 1, 1}, {arg(y)});
  for (int g = 0; g < 64; ++g) {
    const int i = g % 32;
    const auto at = [&](int p) { return ((p - i) % 8 + 8) % 8 * 100 + i; };
    EXPECT_EQ(y[static_cast<std::size_t>(g)], at(3) + at(i * 3 % 8));
  }
}

// Cases in which the Julia package KernelAbstractions fails on the CPU: barriers in loops or conditions, and variables
// that are used before and after a barrier.

TEST(Barriers, PreserveVariablesAcrossIterations) {
  const Function fn = block_kernel("reduce_tree", {64, 1, 1}, [] {
    BufferRef x = in("x"), y = out("y");
    BufferRef s = shared(DType::f32, 64);
    Value t = thread_id();
    Value kept = x.load(global_id());  // used after all barriers
    s.store(t, kept);
    Variable stride(DType::i32, 32);
    for_(0, 6, [&](Value) {
      barrier();
      if_(cast(DType::i32, t) < stride.get(),
          [&] { s.store(t, s.load(t) + s.load(t + cast(DType::index, stride.get()))); });
      stride.set(stride.get() / 2);
    });
    barrier();
    y.store(global_id(), kept + s.load(0));
  });
  std::vector<float> x(128), y(128, nan);
  std::iota(x.begin(), x.end(), 0.f);
  EXPECT_TRUE(findings(fn, {2, 1, 1}, {arg(x), arg(y)}).empty());
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(y[i], x[i] + (i < 64 ? 2016.f : 6112.f));
  for (const Function& cut : without_each_barrier(fn)) EXPECT_FALSE(findings(cut, {2, 1, 1}, {arg(x), arg(y)}).empty());
}
TEST(Barriers, WorkInWhileLoopsAndUniformConditions) {
  const Function fn = block_kernel("rotate", {32, 1, 1}, [] {
    BufferRef y = out("y", DType::i32);
    Value rounds = scalar_param("rounds", DType::i32), doubled = scalar_param("doubled", DType::i32);
    BufferRef s = shared(DType::i32, 32);
    Value t = thread_id();
    s.store(t, cast(DType::i32, t));
    Variable r(DType::i32, 0);
    while_([&] { return r.get() < rounds; },
           [&] {
             barrier();
             Value next = s.load((t + 1) % 32);
             barrier();
             s.store(t, next);
             if_(doubled > 0, [&] {
               barrier();
               Value other = s.load(31 - t);
               barrier();
               s.store(t, other * 2);
             });
             r.set(r.get() + 1);
           });
    y.store(global_id(), s.load(t));
  });
  for (const int doubled : {0, 1}) {
    std::vector<std::int32_t> y(32, -1), s(32), other(32);
    EXPECT_TRUE(findings(fn, {1, 1, 1}, {arg(y), scalar_arg(3), scalar_arg(doubled)}).empty());
    std::iota(s.begin(), s.end(), 0);
    for (int r = 0; r < 3; ++r) {
      std::rotate(s.begin(), s.begin() + 1, s.end());
      if (doubled) {
        other = s;
        for (std::size_t i = 0; i < 32; ++i) s[i] = other[31 - i] * 2;
      }
    }
    EXPECT_EQ(y, s);
  }
}
TEST(Barriers, WorkInBothBranchesAndAfterAGuard) {
  const Function fn = block_kernel("branches", {16, 1, 1}, [] {
    BufferRef y = out("y", DType::i32);
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id(), n = scalar_param("n", DType::index);
    if_(
        block_id() % 2 == 0,
        [&] {
          s.store(t, cast(DType::i32, t));
          barrier();
        },
        [&] {
          s.store(15 - t, cast(DType::i32, t * 10));
          barrier();
        });
    Value v = s.load((t + 1) % 16);
    if_(global_id() < n, [&] { y.store(global_id(), v); });
    barrier();
  });
  std::vector<std::int32_t> y(40, -1);
  EXPECT_TRUE(findings(fn, {3, 1, 1}, {arg(y), index_arg(40)}).empty());
  for (int g = 0; g < 40; ++g) {
    const int t = g % 16, next = (t + 1) % 16;
    EXPECT_EQ(y[static_cast<std::size_t>(g)], g / 16 % 2 == 0 ? next : (15 - next) * 10);
  }
}
TEST(Barriers, WorkInNestedLoopsWithUniformBounds) {
  const Function fn = block_kernel("nested", {8, 1, 1}, [] {
    BufferRef y = out("y", DType::i32);
    BufferRef s = shared(DType::i32, 8);
    Value t = thread_id();
    s.store(t, 1);
    Variable sum(DType::i32, 0);
    for_(Operand(0), block_id() + 1, [&](Value i) {
      for_(Operand(0), i + 1, [&](Value j) {
        barrier();
        sum.set(sum.get() + s.load((t + j) % 8));
        barrier();
        s.store(t, cast(DType::i32, i + j));
      });
    });
    y.store(global_id(), sum.get());
  });
  std::vector<std::int32_t> y(32, -1);
  EXPECT_TRUE(findings(fn, {4, 1, 1}, {arg(y)}).empty());
  for (int b = 0; b < 4; ++b) {
    int s = 1, sum = 0;
    for (int i = 0; i <= b; ++i)
      for (int j = 0; j <= i; ++j) sum += s, s = i + j;
    for (int t = 0; t < 8; ++t) EXPECT_EQ(y[static_cast<std::size_t>(b * 8 + t)], sum);
  }
}

// Tests with several subgroup widths.

class Subgroups : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Subgroups, ComputeOverFullAndPartialSubgroups) {
  const int width = static_cast<int>(GetParam()), threads = 80;
  const Function fn = block_kernel("subgroups", {80, 1, 1}, [] {
    BufferRef y = out("y", DType::i32);
    Value t = thread_id(), v = cast(DType::i32, t * t + 1);
    Variable k(DType::index, 0);
    const auto put = [&](Value x) {
      y.store(t * 16 + k.get(), x);
      k.set(k.get() + 1);
    };
    put(subgroup_sum(v));
    put(subgroup_min(v));
    put(subgroup_max(v));
    put(select(subgroup(SubgroupOp::any, t % 11 == 3), literal(DType::i32, 1), literal(DType::i32, 0)));
    put(select(subgroup(SubgroupOp::all, t < 64), literal(DType::i32, 1), literal(DType::i32, 0)));
    put(subgroup(SubgroupOp::broadcast, v, 0));
    put(subgroup(SubgroupOp::shuffle, v, lane_id() * 3 % 5));
    put(subgroup(SubgroupOp::shuffle_xor, v, 1));
    put(subgroup(SubgroupOp::shuffle_up, v, 2));
    put(subgroup(SubgroupOp::shuffle_down, v, 2));
    put(subgroup(SubgroupOp::inclusive_sum, v));
    put(subgroup(SubgroupOp::exclusive_sum, v));
    put(cast(DType::i32, lane_id()));
    put(cast(DType::i32, subgroup_id()));
    put(cast(DType::i32, subgroup_size()));
    put(cast(DType::i32, subgroup_count()));
  });
  std::vector<std::int32_t> y(80 * 16, -1);
  InterpreterOptions options;
  options.subgroup_width = GetParam();
  run(fn, {1, 1, 1}, {arg(y)}, options);
  EXPECT_TRUE(findings(fn, {1, 1, 1}, {arg(y)}, GetParam()).empty());
  for (int t = 0; t < threads; ++t) {
    const int lane = t % width, begin = t - lane, end = std::min(begin + width, threads);
    const auto v = [](int i) { return i * i + 1; };
    const auto from = [&](int l) { return l >= 0 && begin + l < end ? v(begin + l) : v(t); };
    int sum = 0, before = 0;
    bool any = false, all = true;
    for (int i = begin; i < end; ++i) {
      if (i < t) before += v(i);
      sum += v(i), any = any || i % 11 == 3, all = all && i < 64;
    }
    const std::vector<int> expected = {sum,
                                       v(begin),
                                       v(end - 1),
                                       any,
                                       all,
                                       v(begin),
                                       from(lane * 3 % 5),
                                       (lane ^ 1) < width ? from(lane ^ 1) : v(t),
                                       from(lane - 2),
                                       lane + 2 < width ? from(lane + 2) : v(t),
                                       before + v(t),
                                       before,
                                       lane,
                                       t / width,
                                       width,
                                       (threads + width - 1) / width};
    for (std::size_t k = 0; k < expected.size(); ++k)
      EXPECT_EQ(y[static_cast<std::size_t>(t) * 16 + k], expected[k]) << "thread " << t << " value " << k;
  }
}
TEST_P(Subgroups, SubgroupSumsAddUpToTheBlockSum) {
  const Function fn = block_kernel("two_levels", {96, 1, 1}, [] {
    BufferRef x = in("x"), y = out("y");
    BufferRef partial = shared(DType::f32, 96);
    Value s = subgroup_sum(x.load(global_id()));
    if_(lane_id() == 0, [&] { partial.store(subgroup_id(), s); });
    barrier();
    Variable sum(DType::f32, 0.f);
    for_(Operand(0), subgroup_count(), [&](Value i) { sum.set(sum.get() + partial.load(i)); });
    y.store(global_id(), sum.get());
  });
  std::vector<float> x(192), y(192, nan);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  EXPECT_TRUE(findings(fn, {2, 1, 1}, {arg(x), arg(y)}, GetParam()).empty());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], i < 96 ? 4560.f : 13776.f);
}
INSTANTIATE_TEST_SUITE_P(Widths, Subgroups, testing::Values(1, 8, 32, 64, 128));

TEST(Interpreter, RejectsInvalidSubgroupWidths) {
  for (const std::uint32_t width : {0u, 129u}) {
    InterpreterOptions options;
    options.subgroup_width = width;
    EXPECT_NE(error_of<ArgumentError>([&] { Interpreter(saxpy_kernel(), options); }).find("1 to 128"),
              std::string::npos);
  }
}

// Atomics.

template <class T>
void histogram_and_friends() {
  constexpr DType t = dtype_v<T>;
  const Function fn = map_kernel("atomics", [] {
    BufferRef bins = out("bins", t), old = out("old", t);
    Value i = global_id(), one = literal(t, 1), v = cast(t, i % 97);
    old.store(i, bins.atomic(AtomicOp::add, 0, one));
    bins.atomic(AtomicOp::min, 1, v);
    bins.atomic(AtomicOp::max, 2, v);
    bins.atomic(AtomicOp::add, 3 + i % 4, one);
  });
  std::vector<T> bins = {10, 50, 50, 0, 0, 0, 0}, old(1000, T(77));
  run(fn, {1000, 1, 1}, {arg(bins), arg(old)});
  EXPECT_EQ(bins, (std::vector<T>{1010, 0, 96, 250, 250, 250, 250}));
  std::ranges::sort(old);
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(old[i], T(10 + i));
  std::vector<T> again = {10, 50, 50, 0, 0, 0, 0};
  EXPECT_TRUE(findings(fn, {1000, 1, 1}, {arg(again), arg(old)}).empty());

  const Function swap = map_kernel("exchange", [] {
    BufferRef cell = out("cell", t), old = out("old", t);
    Value i = global_id();
    old.store(i, cell.atomic(AtomicOp::exchange, 0, cast(t, i + 1)));
    cell.atomic_cas(1, literal(t, 7), cast(t, i + 100));
  });
  std::vector<T> cell = {0, 7}, seen(300);
  run(swap, {300, 1, 1}, {arg(cell), arg(seen)});
  EXPECT_EQ(cell, (std::vector<T>{300, 100}));
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(seen[i], T(i));
}
TEST(Interpreter, RunsAtomicsOnBuffers) {
  histogram_and_friends<std::int32_t>();
  histogram_and_friends<std::uint32_t>();
  histogram_and_friends<std::int64_t>();
  histogram_and_friends<std::uint64_t>();
  histogram_and_friends<float>();
}
TEST(Interpreter, RunsAtomicsOnSharedMemory) {
  const Function fn = block_kernel("shared_histogram", {64, 1, 1}, [] {
    BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
    BufferRef bins = shared(DType::i32, 8);
    Value t = thread_id();
    if_(t < 8, [&] { bins.store(t, 0); });
    barrier();
    bins.atomic(AtomicOp::add, cast(DType::index, x.load(global_id())) % 8, literal(DType::i32, 1));
    barrier();
    if_(t < 8, [&] { y.atomic(AtomicOp::add, t, bins.load(t)); });
  });
  std::vector<std::int32_t> x(256), y(8, 0), expected(8, 0);
  for (std::size_t i = 0; i < 256; ++i)
    x[i] = static_cast<int>(i * i % 23), ++expected[static_cast<std::size_t>(x[i]) % 8];
  EXPECT_TRUE(findings(fn, {4, 1, 1}, {arg(x), arg(y)}).empty());
  EXPECT_EQ(y, expected);
}

// Types.

TEST(Interpreter, StoresBoolsAsZeroOrOne) {
  const Function fn = map_kernel("bools", [] {
    BufferRef x = in("x", DType::boolean), y = out("y", DType::boolean);
    Value i = global_id();
    y.store(i, x.load(i) && i % 2 == 0);
  });
  std::vector<std::uint8_t> x = {0, 1, 2, 255, 128, 0}, y(6, 9);
  run(fn, {6, 1, 1}, {{reinterpret_cast<std::byte*>(x.data()), 6, 0}, {reinterpret_cast<std::byte*>(y.data()), 6, 0}});
  EXPECT_EQ(y, (std::vector<std::uint8_t>{0, 0, 1, 0, 1, 0}));
}
TEST(Interpreter, AcceptsUnalignedBuffers) {
  std::vector<std::byte> raw(4 * 100 + 1);
  const Function fn = saxpy_kernel();
  std::vector<float> x(100, 2.f);
  std::byte* y = raw.data() + 1;
  for (int i = 0; i < 100; ++i) {
    const float v = static_cast<float>(i);
    std::memcpy(y + 4 * i, &v, 4);
  }
  run(fn, {100, 1, 1}, {arg(x), {y, 100, 0}, scalar_arg(10.f)});
  for (int i = 0; i < 100; ++i) {
    float v;
    std::memcpy(&v, y + 4 * i, 4);
    EXPECT_EQ(v, 20.f + static_cast<float>(i));
  }
}

TEST(Interpreter, PrintsLinesInThreadOrder) {
  const Function fn = map_kernel("prints", [] {
    Value i = global_id();
    if_(i % 2 == 1, [&] { print("{} is odd, half {} {{}} {}", {i, cast(DType::f32, i) / 2.f, i > 1}); });
  });
  std::vector<std::string> lines;
  InterpreterOptions options;
  options.print = [&](std::string_view s) { lines.emplace_back(s); };
  run(fn, {4, 1, 1}, {}, options);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "1 is odd, half 0.5 {} 0");
  EXPECT_EQ(lines[1], "3 is odd, half 1.5 {} 1");
}

TEST(Interpreter, RejectsWrongArguments) {
  std::vector<float> x(4);
  EXPECT_NE(error_of<KernelError>([&] {
              run(saxpy_kernel(), {4, 1, 1}, {arg(x), arg(x)});
            }).find("takes 3 arguments, but got 2"),
            std::string::npos);
  EXPECT_NE(error_of<KernelError>([&] {
              run(saxpy_kernel(), {4, 1, 1}, {{nullptr, 4, 0}, arg(x), scalar_arg(1.f)});
            }).find("null pointer"),
            std::string::npos);
  const std::uint64_t huge = std::uint64_t{1} << 40;
  EXPECT_NE(error_of<KernelError>([&] {
              run(saxpy_kernel(), {huge, huge, 1}, {arg(x), arg(x), scalar_arg(1.f)});
            }).find("more than 2^62 threads"),
            std::string::npos);
}
TEST(Interpreter, RunIsThreadSafe) {
  const Interpreter interpreter(saxpy_kernel());
  std::vector<std::vector<float>> ys(4, std::vector<float>(5000, 1.f));
  std::vector<float> x(5000, 2.f);
  std::vector<std::exception_ptr> errors(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int k = 0; k < 50; ++k) {
          const std::array arguments = {arg(x), arg(ys[t]), scalar_arg(static_cast<float>(t))};
          interpreter.run({5000, 1, 1}, arguments);
        }
      });
  }
  for (std::size_t t = 0; t < 4; ++t)
    for (const float v : ys[t]) ASSERT_EQ(v, 1.f + 100.f * static_cast<float>(t));
}

}  // namespace
}  // namespace tessera::ir
