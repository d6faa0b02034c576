// SPDX-License-Identifier: Apache-2.0
// The OpenCL backend at the level of Driver: kernels of each kind, memory, queues, events and errors, on the first
// device.
#include "tessera/backend/opencl/api.h"
#include "tests/compilers/emit_zoo.h"
#include "tests/opencl/opencl_fixture.h"
#include "tests/support/errors.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace tessera::test {
namespace {

using namespace ir;

class OpenCl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "this machine has no OpenCL device (Debian: pocl-opencl-icd)";
  }
};

std::vector<float> random_floats(std::size_t n, float low = -1, float high = 1) {
  static std::mt19937 random(test_seed());
  std::uniform_real_distribution<float> d(low, high);
  std::vector<float> v(n);
  for (float& x : v) x = d(random);
  return v;
}

Function saxpy() {
  return map_kernel("saxpy", [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read),
                    y = buffer_param("y", DType::f32, Access::read_write);
    const Value a = scalar_param("a", DType::f32);
    const Value i = global_id();
    y.store(i, a * x.load(i) + y.load(i));
  });
}
Function block_sum_kernel() {
  return block_kernel("block sum", {256, 1, 1}, [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read),
                    out = buffer_param("out", DType::f32, Access::read_write);
    const Variable s(DType::f32, 0.0);
    for_(global_id(), x.size(), grid_size(), [&](Value i) { s.set(s.get() + x.load(i)); });
    const Value total = block_sum(s.get());
    if_(thread_id() == 0, [&] { out.store(block_id(), total); });
  });
}
Function tiled_product(std::uint32_t tile) {
  return block_kernel("tiled_product", {tile, tile, 1}, [&] {
    const BufferRef a = buffer_param("a", DType::f32, Access::read), b = buffer_param("b", DType::f32, Access::read);
    const BufferRef c = buffer_param("c", DType::f32, Access::read_write);
    const Value m = scalar_param("m", DType::index), n = scalar_param("n", DType::index),
                k = scalar_param("k", DType::index);
    const BufferRef as = shared(DType::f32, tile * tile), bs = shared(DType::f32, tile * tile);
    const Value tx = thread_id(0), ty = thread_id(1);
    const Value row = block_id(1) * tile + ty, column = block_id(0) * tile + tx;
    const Variable sum(DType::f32, 0.0);
    for_(0, (k + (tile - 1)) / tile, [&](Value t) {
      const Value ka = t * tile + tx, kb = t * tile + ty;
      as.store(ty * tile + tx, a.load_if(row < m && ka < k, row * k + ka, 0.0));
      bs.store(ty * tile + tx, b.load_if(kb < k && column < n, kb * n + column, 0.0));
      barrier();
      for (std::uint32_t j = 0; j < tile; ++j) sum.set(fma(as.load(ty * tile + j), bs.load(tx + tile * j), sum.get()));
      barrier();
    });
    if_(row < m && column < n, [&] { c.store(row * n + column, sum.get()); });
  });
}

TEST_F(OpenCl, enumeration_is_truthful) {
  const BackendReport report = driver().enumerate();
  EXPECT_EQ(report.backend, Backend::opencl);
  EXPECT_EQ(report.state, DeviceState::enumerated);
  EXPECT_NE(report.file.find("OpenCL"), std::string::npos);
  int index = 0;
  for (const DeviceInfo& info : report.devices) {
    EXPECT_EQ(info.device, (Device{Backend::opencl, index++}));
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.driver_version.empty());
    EXPECT_GT(info.total_memory, 1u << 28);
    EXPECT_GT(info.compute_units, 0u);
    EXPECT_GE(info.can.max_block_threads, 64u);
    EXPECT_FALSE(info.can.subgroup_widths.empty());
    // A device that answers needs no excuse here: discovery says that no kernel has been run on it yet.
    EXPECT_EQ(info.reason.empty(), info.state == DeviceState::enumerated) << info.reason;
    EXPECT_EQ(info.remedy.empty(), info.state == DeviceState::enumerated) << info.remedy;
  }
  const DeviceInfo& first = device()->info();
  if (first.driver_version.find("Portable") != std::string::npos) {  // PoCL runs on the CPU and says so
    EXPECT_EQ(first.kind, DeviceKind::cpu);
    EXPECT_TRUE(first.unified_memory);
    EXPECT_TRUE(first.can.f64);
  }
  EXPECT_GT(device()->free_memory(), 1u << 20);
}

TEST_F(OpenCl, a_device_that_does_not_exist_is_an_error_that_says_how_many_there_are) {
  try {
    driver().open(99);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("opencl:99"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("OpenCL device"), std::string::npos) << e.what();
  }
}

TEST_F(OpenCl, saxpy_for_many_sizes) {
  const Function fn = saxpy();
  const auto kernel = compile(fn);
  for (std::size_t n : {1u, 2u, 63u, 64u, 65u, 255u, 256u, 257u, 1000u, 70001u}) {
    const auto x = random_floats(n), y = random_floats(n);
    const Memory<float> dx(x), dy(y);
    const Argument args[] = {dx.argument(), dy.argument(), scalar(2.5f)};
    queue().launch(*kernel, {n, 1, 1}, args);
    const auto got = dy.read();
    for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], 2.5f * x[i] + y[i], 1e-6f) << i << " of " << n;
  }
}

TEST_F(OpenCl, writes_nothing_past_the_extent_and_honours_offsets) {
  const std::size_t n = 100;
  const auto x = random_floats(n + 7);
  const std::vector<float> y(n + 20, 1.0f);
  const Memory<float> dx(x), dy(y);
  run(saxpy(), {n, 1, 1}, {dx.argument(7), dy.argument(5), scalar(1.0f)});
  const auto got = dy.read();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool inside = i >= 5 && i < 5 + n;
    ASSERT_EQ(got[i], inside ? x[i - 5 + 7] + 1.0f : 1.0f) << i;
  }
}

TEST_F(OpenCl, the_same_buffer_twice_runs_in_the_variant_that_allows_it) {
  const auto x = random_floats(1000);
  const Memory<float> dx(x);
  run(saxpy(), {1000, 1, 1}, {dx.argument(), dx.argument(), scalar(3.0f)}, {.noalias = false});
  const auto got = dx.read();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i], 4 * x[i], 1e-6f);
}

TEST_F(OpenCl, wide_indices_give_the_same) {
  const auto x = random_floats(777), y = random_floats(777);
  const Memory<float> dx(x), narrow(y), wide(y);
  run(saxpy(), {777, 1, 1}, {dx.argument(), narrow.argument(), scalar(0.5f)}, {.index64 = false});
  run(saxpy(), {777, 1, 1}, {dx.argument(), wide.argument(), scalar(0.5f)}, {.index64 = true});
  EXPECT_EQ(narrow.read(), wide.read());
}

TEST_F(OpenCl, two_and_three_dimensions) {
  const Function fn = map_kernel("number", [] {
    const BufferRef out = buffer_param("out", DType::i32, Access::read_write);
    const Value at = (global_id(2) * extent(1) + global_id(1)) * extent(0) + global_id(0);
    out.store(at, cast(DType::i32, at));
  });
  const auto kernel = compile(fn);
  using Shape = std::array<std::uint64_t, 3>;
  for (Shape shape :
       {Shape{1, 1, 1}, {5, 3, 2}, {100, 7, 1}, {3, 500, 1}, {17, 17, 17}, {70000, 1, 1}, {1, 70000, 1}, {2, 2, 300}}) {
    const std::size_t n = shape[0] * shape[1] * shape[2];
    const Memory<std::int32_t> out(n);
    const Argument args[] = {out.argument()};
    queue().launch(*kernel, shape, args);
    const auto got = out.read();
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], static_cast<std::int32_t>(i));
  }
}

TEST_F(OpenCl, sum_of_blocks) {
  for (std::size_t n : {1u, 255u, 5000u, 100003u}) {
    const auto x = random_floats(n, 0, 1);
    const Memory<float> dx(x), out(16);
    run(block_sum_kernel(), {16, 1, 1}, {dx.argument(), out.argument()});
    double right = 0, got = 0;
    for (float v : x) right += v;
    for (float v : out.read()) got += v;
    EXPECT_NEAR(got, right, 1e-4 * right + 1e-6) << n;
  }
}

TEST_F(OpenCl, tiled_product_with_remainders) {
  const Function fn = tiled_product(16);
  const auto kernel = compile(fn);
  using Size = std::array<std::size_t, 3>;
  for (auto [m, n, k] : {Size{16, 16, 16}, {1, 1, 1}, {33, 50, 17}, {64, 31, 100}}) {
    const auto a = random_floats(m * k), b = random_floats(k * n);
    const Memory<float> da(a), db(b), dc(m * n);
    const Argument args[] = {da.argument(),           db.argument(),           dc.argument(),
                             scalar(std::int64_t(m)), scalar(std::int64_t(n)), scalar(std::int64_t(k))};
    queue().launch(*kernel, {(n + 15) / 16, (m + 15) / 16, 1}, args);
    const auto c = dc.read();
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double right = 0;
        for (std::size_t l = 0; l < k; ++l) right += static_cast<double>(a[i * k + l]) * b[l * n + j];
        ASSERT_NEAR(c[i * n + j], right, 1e-4) << i << ", " << j;
      }
  }
}

TEST_F(OpenCl, softmax_of_rows) {
  const std::size_t rows = 37, n = 1000;
  const Function fn = block_kernel("softmax", {128, 1, 1}, [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read),
                    y = buffer_param("y", DType::f32, Access::read_write);
    const Value n = scalar_param("n", DType::index);
    const Value base = block_id() * n;
    const Variable high(DType::f32, -INFINITY), sum(DType::f32, 0.0);
    for_(thread_id(), n, block_size(), [&](Value j) { high.set(max(high.get(), x.load(base + j))); });
    const Value top = block_max(high.get());
    for_(thread_id(), n, block_size(), [&](Value j) { sum.set(sum.get() + exp(x.load(base + j) - top)); });
    const Value total = block_sum(sum.get());
    for_(thread_id(), n, block_size(), [&](Value j) { y.store(base + j, exp(x.load(base + j) - top) / total); });
  });
  const auto x = random_floats(rows * n, -20, 20);
  const Memory<float> dx(x), dy(rows * n);
  run(fn, {rows, 1, 1}, {dx.argument(), dy.argument(), scalar(std::int64_t(n))});
  const auto y = dy.read();
  for (std::size_t r = 0; r < rows; ++r) {
    double top = -INFINITY, sum = 0;
    for (std::size_t j = 0; j < n; ++j) top = std::max<double>(top, x[r * n + j]);
    for (std::size_t j = 0; j < n; ++j) sum += std::exp(x[r * n + j] - top);
    for (std::size_t j = 0; j < n; ++j) {
      const double right = std::exp(x[r * n + j] - top) / sum;
      ASSERT_NEAR(y[r * n + j], right, 1e-6 * right + 1e-9);
    }
  }
}

// What breaks KernelAbstractions on the CPU: barriers inside uniform loops and conditions, and variables across them.
TEST_F(OpenCl, barriers_in_uniform_loops_and_conditions) {
  const std::uint32_t t = 64;
  const Function fn = block_kernel("rotate", {t, 1, 1}, [&] {
    const BufferRef x = buffer_param("x", DType::i32, Access::read),
                    y = buffer_param("y", DType::i32, Access::read_write);
    const Value rounds = scalar_param("rounds", DType::index);
    const BufferRef s = shared(DType::i32, t);
    const Value i = thread_id();
    const Variable mine(DType::i32, x.load(global_id()));
    for_(0, rounds, [&](Value r) {
      s.store(i, mine.get());
      barrier();
      mine.set(s.load((i + 1) % t) + 1);
      barrier();
      if_(r % 2 == 0, [&] {
        s.store(i, mine.get() * 2);
        barrier();
        mine.set(s.load((i + (t - 1)) % t));
        barrier();
      });
    });
    const Variable left(DType::index, rounds);
    while_([&] { return left.get() > 0; },
           [&] {
             s.store(i, mine.get());
             barrier();
             mine.set(mine.get() + s.load(0));
             barrier();
             left.set(left.get() - 1);
           });
    y.store(global_id(), mine.get());
  });
  const std::size_t blocks = 5;
  std::vector<std::int32_t> x(t * blocks);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::int32_t>(i * 7 % 23);
  const Memory<std::int32_t> dx(x), dy(x.size());
  for (std::int64_t rounds : {0, 1, 2, 5}) {
    run(fn, {blocks, 1, 1}, {dx.argument(), dy.argument(), scalar(rounds)});
    const auto y = dy.read();
    for (std::size_t b = 0; b < blocks; ++b) {
      std::vector<std::uint32_t> v(x.begin() + static_cast<std::ptrdiff_t>(b * t),
                                   x.begin() + static_cast<std::ptrdiff_t>((b + 1) * t)),
          w(t);
      for (std::int64_t r = 0; r < rounds; ++r) {
        for (std::size_t i = 0; i < t; ++i) w[i] = v[(i + 1) % t] + 1;
        v = w;
        if (r % 2 == 0) {
          for (std::size_t i = 0; i < t; ++i) w[i] = v[(i + t - 1) % t] * 2;
          v = w;
        }
      }
      for (std::int64_t r = 0; r < rounds; ++r) {
        const std::uint32_t first = v[0];
        for (auto& e : v) e += first;
      }
      for (std::size_t i = 0; i < t; ++i)
        ASSERT_EQ(static_cast<std::uint32_t>(y[b * t + i]), v[i]) << rounds << " rounds, " << b << ", " << i;
    }
  }
}

TEST_F(OpenCl, block_reductions_and_scans_of_every_size) {
  for (std::array<std::uint32_t, 3> block :
       {std::array<std::uint32_t, 3>{1, 1, 1}, {7, 1, 1}, {64, 1, 1}, {16, 5, 3}}) {
    const std::uint32_t t = block[0] * block[1] * block[2];
    const Function fn = block_kernel("collect", block, [&] {
      const BufferRef x = buffer_param("x", DType::i32, Access::read),
                      out = buffer_param("out", DType::i32, Access::read_write);
      const Value i = (thread_id(2) * block[1] + thread_id(1)) * block[0] + thread_id(0);
      const Value v = x.load(block_id() * t + i);
      const Value results[] = {block_sum(v),
                               block_min(v),
                               block_max(v),
                               block_scan(v, false),
                               block_scan(v, true),
                               block_reduce(ReduceOp::and_, v),
                               block_reduce(ReduceOp::or_, v),
                               block_sum(block_scan(v, false)),
                               cast(DType::i32, block_reduce(ReduceOp::or_, v > 90)),
                               cast(DType::i32, block_reduce(ReduceOp::and_, v < 99))};
      int k = 0;
      for (const Value& r : results) out.store((block_id() * t + i) * 10 + k++, r);
    });
    const std::size_t blocks = 3;
    std::mt19937 random(test_seed() + t);
    std::vector<std::int32_t> x(t * blocks);
    for (auto& v : x) v = static_cast<std::int32_t>(random() % 200) - 100;
    const Memory<std::int32_t> dx(x), out(x.size() * 10);
    run(fn, {blocks, 1, 1}, {dx.argument(), out.argument()});
    const auto got = out.read();
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::int32_t* v = x.data() + b * t;
      std::int32_t sum = 0, low = v[0], high = v[0], all = -1, any = 0, scans = 0, running = 0;
      for (std::size_t i = 0; i < t; ++i)
        sum += v[i], low = std::min(low, v[i]), high = std::max(high, v[i]), all &= v[i], any |= v[i], scans += sum;
      for (std::size_t i = 0; i < t; ++i) {
        const std::int32_t before = running;
        running += v[i];
        const std::int32_t right[] = {sum, low, high, running, before, all, any, scans, high > 90, high < 99};
        for (std::size_t k = 0; k < 10; ++k)
          ASSERT_EQ(got[(b * t + i) * 10 + k], right[k]) << "result " << k << " of thread " << i << " of " << t;
      }
    }
  }
}

TEST_F(OpenCl, subgroup_operations_mean_something_without_subgroups) {
  const Function fn = block_kernel("subgroups", {64, 1, 1}, [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read),
                    out = buffer_param("out", DType::f32, Access::read_write);
    const BufferRef part = shared(DType::f32, 64);
    const Value w = subgroup_sum(x.load(global_id()));
    if_(lane_id() == 0, [&] { part.store(subgroup_id(), w); });
    barrier();
    const Variable p(DType::f32, 0.0);
    for_(lane_id(), subgroup_count(), subgroup_size(), [&](Value i) { p.set(p.get() + part.load(i)); });
    const Value total = subgroup_sum(p.get());
    if_(thread_id() == 0, [&] { out.store(block_id(), total); });
  });
  const auto x = random_floats(640, 0, 1);
  const Memory<float> dx(x), out(10);
  run(fn, {10, 1, 1}, {dx.argument(), out.argument()});
  const auto got = out.read();
  for (std::size_t b = 0; b < 10; ++b) {
    double right = 0;
    for (std::size_t i = 0; i < 64; ++i) right += x[b * 64 + i];
    EXPECT_NEAR(got[b], right, 1e-4);
  }
}

TEST_F(OpenCl, atomics_on_buffers_and_shared_memory) {
  const std::size_t n = 10000;
  const Function fn = block_kernel("histogram", {64, 1, 1}, [] {
    const BufferRef x = buffer_param("x", DType::u32, Access::read),
                    bins = buffer_param("bins", DType::i32, Access::read_write);
    const BufferRef sum = buffer_param("sum", DType::f32, Access::read_write),
                    low = buffer_param("low", DType::f32, Access::read_write);
    const BufferRef wide = buffer_param("wide", DType::u64, Access::read_write),
                    order = buffer_param("order", DType::u32, Access::read_write);
    const BufferRef here = shared(DType::u32, 16);
    if_(thread_id() < 16, [&] { here.store(thread_id(), 0); });
    barrier();
    if_(global_id() < x.size(), [&] {
      const Value v = x.load(global_id());
      here.atomic(AtomicOp::add, v % 16, literal(DType::u32, 1));
      sum.atomic(AtomicOp::add, 0, literal(DType::f32, 0.5));
      low.atomic(AtomicOp::min, 0, cast(DType::f32, v));
      low.atomic(AtomicOp::max, 1, cast(DType::f32, v));
      wide.atomic(AtomicOp::add, 0, cast(DType::u64, v) * 1000000007);
      wide.atomic(AtomicOp::max, 1, cast(DType::u64, v) << 20);
      const Value ticket = order.atomic(AtomicOp::add, 0, literal(DType::u32, 1));
      order.store(cast(DType::index, ticket) + 1, v);
    });
    barrier();
    if_(thread_id() < 16, [&] { bins.atomic(AtomicOp::add, thread_id(), cast(DType::i32, here.load(thread_id()))); });
  });
  std::mt19937 random(test_seed());
  std::vector<std::uint32_t> x(n);
  for (auto& v : x) v = random() % 100000;
  const Memory<std::uint32_t> dx(x), order(std::vector<std::uint32_t>(n + 1, 0));
  const Memory<std::int32_t> bins(std::vector<std::int32_t>(16, 0));
  const Memory<float> sum(std::vector<float>{0}), low(std::vector<float>{1e9f, -1});
  const Memory<std::uint64_t> wide(std::vector<std::uint64_t>{0, 0});
  run(fn, {(n + 63) / 64, 1, 1},
      {dx.argument(), bins.argument(), sum.argument(), low.argument(), wide.argument(), order.argument()});
  std::vector<std::int32_t> right(16);
  std::uint64_t total = 0;
  for (auto v : x) ++right[v % 16], total += v * std::uint64_t{1000000007};
  EXPECT_EQ(bins.read(), right);
  EXPECT_EQ(sum.read()[0], 0.5f * n);
  EXPECT_EQ(low.read()[0], static_cast<float>(*std::ranges::min_element(x)));
  EXPECT_EQ(low.read()[1], static_cast<float>(*std::ranges::max_element(x)));
  EXPECT_EQ(wide.read(), (std::vector<std::uint64_t>{total, std::uint64_t{*std::ranges::max_element(x)} << 20}));
  auto tickets = order.read();
  EXPECT_EQ(tickets[0], n);
  std::vector<std::uint32_t> got(tickets.begin() + 1, tickets.end());
  std::ranges::sort(got), std::ranges::sort(x);
  EXPECT_EQ(got, x);
}

TEST_F(OpenCl, fills_of_every_pattern_and_copies_with_offsets) {
  std::vector<std::uint8_t> expected(1024, 0);
  const Memory<std::uint8_t> a(expected), b(expected);
  for (std::size_t size : {1u, 2u, 4u, 8u}) {
    std::vector<std::byte> pattern(size);
    for (std::size_t i = 0; i < size; ++i) pattern[i] = static_cast<std::byte>(16 * size + i);
    const std::size_t at = 64 * size, bytes = 5 * size;
    queue().fill(a.allocation(), at, bytes, pattern);
    for (std::size_t i = 0; i < bytes; ++i) expected[at + i] = static_cast<std::uint8_t>(pattern[i % size]);
  }
  EXPECT_EQ(a.read(), expected);
  queue().copy(b.allocation(), 3, a.allocation(), 60, 500);
  std::vector<std::uint8_t> right(1024, 0);
  std::copy_n(expected.begin() + 60, 500, right.begin() + 3);
  EXPECT_EQ(b.read(), right);
  // Overlapping ranges of one allocation, both ways.
  queue().copy(b.allocation(), 10, b.allocation(), 0, 600);
  std::copy_backward(right.begin(), right.begin() + 600, right.begin() + 610);
  EXPECT_EQ(b.read(), right);
  queue().copy(b.allocation(), 0, b.allocation(), 33, 900);
  std::copy(right.begin() + 33, right.begin() + 933, right.begin());
  EXPECT_EQ(b.read(), right);
  std::uint8_t few[5];
  queue().download(few, b.allocation(), 7, 5);
  EXPECT_TRUE(std::equal(few, few + 5, right.begin() + 7));
  queue().upload(b.allocation(), 1, few, 0);
  queue().fill(b.allocation(), 0, 0, std::vector<std::byte>(4));
  queue().copy(b.allocation(), 0, a.allocation(), 0, 0);
  EXPECT_EQ(b.read(), right);
}

TEST_F(OpenCl, uploads_do_not_hold_on_to_the_callers_memory) {
  const std::size_t n = 1000;
  std::vector<std::unique_ptr<Memory<std::uint32_t>>> memories;
  for (std::uint32_t k = 0; k < 200; ++k) {
    std::vector<std::uint32_t> values(n, k);
    memories.push_back(std::make_unique<Memory<std::uint32_t>>(values));
    std::ranges::fill(values, 0xdeadu);
  }
  for (std::uint32_t k = 0; k < 200; ++k) ASSERT_EQ(memories[k]->read(), std::vector<std::uint32_t>(n, k));
}

TEST_F(OpenCl, pinned_memory_is_the_hosts_and_copies_to_and_fro) {
  const Allocation pinned = device()->allocate(4000, MemoryKind::pinned);
  ASSERT_NE(pinned.host, nullptr);
  auto* floats = reinterpret_cast<float*>(pinned.host);
  for (int i = 0; i < 1000; ++i) floats[i] = static_cast<float>(i);
  const Memory<float> there(1000);
  queue().copy(there.allocation(), 0, pinned, 0, 4000);
  queue().finish();
  std::memset(pinned.host, 0, 4000);
  queue().copy(pinned, 400, there.allocation(), 0, 3600);
  queue().finish();
  for (int i = 100; i < 1000; ++i) ASSERT_EQ(floats[i], static_cast<float>(i - 100));
  device()->release(pinned);
}

TEST_F(OpenCl, uploads_go_through_pieces_that_are_used_again) {
  const std::size_t n = 180000;  // 720 kB: two to a piece, and more of them than there are pieces
  std::vector<std::unique_ptr<Memory<std::uint32_t>>> memories;
  for (std::uint32_t k = 0; k < 60; ++k) {
    std::vector<std::uint32_t> values(n, k);
    values[n - 1] = ~k;
    memories.push_back(std::make_unique<Memory<std::uint32_t>>(values));
    std::ranges::fill(values, 0xdeadu);
  }
  for (std::uint32_t k = 0; k < 60; ++k) {
    const auto got = memories[k]->read();
    ASSERT_EQ(std::pair(got[0], got[n - 1]), std::pair(k, ~k));
  }
}

TEST_F(OpenCl, pinned_memory_comes_and_goes_from_many_threads) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<Allocation> mine;
      for (unsigned i = 0; i < 20; ++i) {
        mine.push_back(device()->allocate(1000 + 100 * i, MemoryKind::pinned));
        ASSERT_NE(mine.back().host, nullptr);
        std::memset(mine.back().host, static_cast<int>(t), mine.back().bytes);
        if (i % 3 == 0) {
          EXPECT_EQ(mine.front().host[0], static_cast<std::byte>(t));
          device()->release(mine.front());
          mine.erase(mine.begin());
        }
      }
      for (const Allocation& a : mine) {
        EXPECT_EQ(a.host[a.bytes - 1], static_cast<std::byte>(t));
        device()->release(a);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(OpenCl, events_order_two_queues) {
  const Function slow = map_kernel("slow", [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
    const Variable v(DType::f32, 0.0);
    for_(0, 200000, [&](Value i) { v.set(v.get() * 0.999 + cast(DType::f32, i)); });
    x.store(global_id(), select(v.get() > -1, 7.0, v.get()));
  });
  const Function next = map_kernel("next", [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
    x.store(global_id(), x.load(global_id()) + 1);
  });
  const auto first = compile(slow), second = compile(next);
  const auto other = device()->make_queue();
  EXPECT_EQ(other->record(), nullptr);
  const Memory<float> x(std::vector<float>(64, 0));
  const Argument args[] = {x.argument()};
  queue().launch(*first, {64, 1, 1}, args);
  const auto event = queue().record();
  ASSERT_NE(event, nullptr);
  other->wait(*event);
  other->launch(*second, {64, 1, 1}, args);
  other->finish();
  EXPECT_TRUE(event->done());
  event->wait();
  EXPECT_EQ(x.read(), std::vector<float>(64, 8.0f));
  EXPECT_EQ(other->record(), nullptr);
}

TEST_F(OpenCl, kernels_of_a_batch_all_work) {
  std::vector<Function> fns = {saxpy(), block_sum_kernel(), tiled_product(8), saxpy()};
  std::vector<CompileRequest> requests;
  for (const Function& f : fns) requests.push_back({&f, {}});
  const auto kernels = device()->compile(requests);
  ASSERT_EQ(kernels.size(), 4u);
  const auto x = random_floats(500), y = random_floats(500);
  const Memory<float> dx(x), dy(y);
  const Argument args[] = {dx.argument(), dy.argument(), scalar(2.0f)};
  queue().launch(*kernels[3], {500, 1, 1}, args);
  const auto got = dy.read();
  for (std::size_t i = 0; i < 500; ++i) ASSERT_NEAR(got[i], 2 * x[i] + y[i], 1e-6f);
}

// Who reports a fault to a driver's makers sends this text.
TEST_F(OpenCl, a_kernels_source_is_a_whole_program_that_the_compiler_takes_again) {
  std::vector<Function> fns = {saxpy(), tiled_product(8)};
  for (const DType t : {DType::i8, DType::f32}) fns.push_back(zoo::arithmetic(t));  // with functions of ours
  std::vector<CompileRequest> requests;
  for (const Function& f : fns) requests.push_back({&f, {}});
  const auto kernels = device()->compile(requests);
  const auto context = static_cast<cl::Context>(device()->native_context());
  cl::DeviceId id = nullptr;
  constexpr std::uint32_t context_devices = 0x1081;
  const auto get_context_info =
      cl::api().library.function<cl::Code(cl::Context, std::uint32_t, std::size_t, void*, std::size_t*)>(
          "clGetContextInfo");
  ASSERT_EQ(get_context_info(context, context_devices, sizeof id, &id, nullptr), cl::success);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::string text = kernels[i]->source();
    EXPECT_NE(text.find("void " + fns[i].name), text.npos) << text;
    const char* source = text.c_str();
    cl::Code code = cl::success;
    const cl::Program program = cl::api().create_program(context, 1, &source, nullptr, &code);
    ASSERT_EQ(code, cl::success);
    EXPECT_EQ(cl::api().build_program(program, 1, &id, "-cl-std=CL1.2", nullptr, nullptr), cl::success) << text;
    cl::api().release_program(program);
  }
  EXPECT_NE(kernels[2]->source().find("static inline char tessera_div_i8"), std::string::npos) << kernels[2]->source();
}

TEST_F(OpenCl, one_kernel_launched_from_many_threads) {
  const Function fn = saxpy();
  const auto kernel = compile(fn);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Memory<float>>> xs, ys;
  std::vector<std::unique_ptr<DriverQueue>> queues;
  const std::size_t n = 300;
  for (int t = 0; t < 8; ++t) {
    xs.push_back(std::make_unique<Memory<float>>(std::vector<float>(n, static_cast<float>(t))));
    ys.push_back(std::make_unique<Memory<float>>(std::vector<float>(n, 0.0f)));
    queues.push_back(device()->make_queue());
  }
  queue().finish();
  for (std::size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const Argument args[] = {xs[t]->argument(), ys[t]->argument(), scalar(static_cast<float>(t + 1))};
      for (int round = 0; round < 50; ++round) queues[t]->launch(*kernel, {n, 1, 1}, args);
      queues[t]->finish();
    });
  for (auto& t : threads) t.join();
  for (std::size_t t = 0; t < 8; ++t)
    EXPECT_EQ(ys[t]->read(), std::vector<float>(n, static_cast<float>(50 * t * (t + 1))));
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(OpenCl, what_a_device_cannot_do_is_said_with_the_kernels_name) {
  const Function big = block_kernel("big", {32, 1, 1}, [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
    const BufferRef s = shared(DType::f32, 1 << 24);
    s.store(thread_id(), 1.0);
    barrier();
    x.store(thread_id(), s.load(0));
  });
  const std::string text = test::text_of<KernelError>([&] { compile(big); });
  EXPECT_HAS(text, "kernel big");
  EXPECT_HAS(text, "shared memory");
  const Memory<float> x(8);
  const std::string few = test::text_of<KernelError>([&] { run(saxpy(), {8, 1, 1}, {x.argument()}); });
  EXPECT_HAS(few, "saxpy");
  const Argument odd{&x.allocation(), 2, 4};
  const std::string offset = test::text_of<KernelError>([&] {
    run(saxpy(), {1, 1, 1}, {odd, x.argument(), scalar(1.0f)});
  });
  EXPECT_HAS(offset, "buffer x");
}

TEST_F(OpenCl, memory_that_cannot_be_had_is_out_of_memory_and_harms_nothing) {
  test::text_of<OutOfMemory>([] { device()->allocate(std::size_t{1} << 60, MemoryKind::device); });
  const std::vector<float> v = {1, 2, 3};
  EXPECT_EQ(Memory<float>(v).read(), v);
}

}  // namespace
}  // namespace tessera::test
