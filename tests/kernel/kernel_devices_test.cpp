// SPDX-License-Identifier: Apache-2.0
// Tests the kernel language on every device: aliasing, integer limits, and barriers in loops and conditions.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "tessera/ir/value.h"
#include "tessera/kernel/algorithms.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

template <class T>
DeviceBuffer<T> upload(const std::vector<T>& data) {
  DeviceBuffer<T> b(data.size());
  b.upload(data);
  return b;
}
template <class T>
std::vector<T> contents(const DeviceBuffer<T>& b) {
  return b.to_vector();
}

TEST_P(OnEveryDevice, AcceptsSameBufferTwiceButRejectsPartialOverlap) {
  const auto saxpy = kernel("saxpy", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
    auto i = global_id();
    y[i] = a * x[i] + y[i];
  });
  std::vector<float> data(1000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  auto x = upload(data);
  saxpy.launch({1000}, x, x, 2.0f);
  const auto got = contents(x);
  for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(got[i], 3 * data[i]) << i;

  const BufferView whole = kernel_argument(x, ir::Access::read_write);
  BufferView front = whole, back = whole;
  front.elements = 600;
  back.byte_offset += 400 * sizeof(float), back.elements = 600;
  try {
    saxpy.launch({600}, front, back, 2.0f);
    FAIL() << "partial overlap with a writer was not rejected";
  } catch (const KernelError& e) {
    EXPECT_NE(std::string(e.what()).find("saxpy"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("overlap"), std::string::npos) << e.what();
  }
  EXPECT_EQ(contents(x), got) << "a rejected launch must not run";
  back.byte_offset = whole.byte_offset + 500 * sizeof(float), back.elements = 500, front.elements = 500;
  saxpy.launch({500}, front, back, 1.0f);
  EXPECT_EQ(contents(x)[700], got[700] + got[200]);
}

TEST_P(OnEveryDevice, IntegersWrapInVectorisedLoops) {
  const auto wrap = kernel("wrap", [](Buffer<std::int64_t> wide, Buffer<std::int8_t> narrow) {
    auto i = global_id();
    wide[i] = cast<std::int64_t>(cast<std::int32_t>(i) + 2147483640);
    narrow[i] = cast<std::int8_t>(i) << 9;  // shift amounts are taken modulo 8, so this shifts by 1
  });
  auto wide = upload(std::vector<std::int64_t>(64));
  auto narrow = upload(std::vector<std::int8_t>(64));
  wrap.launch({64}, wide, narrow);
  const auto w = contents(wide);
  const auto n = contents(narrow);
  for (std::size_t i = 0; i < 64; ++i) {
    ASSERT_EQ(w[i], static_cast<std::int32_t>(static_cast<std::uint32_t>(i) + 2147483640u)) << i;
    ASSERT_EQ(n[i], static_cast<std::int8_t>(2 * i)) << i;
  }
}

TEST_P(OnEveryDevice, MathFunctionsMatchTheReference) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto floats = kernel("floats", [](Buffer<const float> x, Buffer<float> y, Buffer<bool> is) {
    auto i = global_id();
    auto v = x[i];
    y[8 * i] = sign(v), y[8 * i + 1] = copysign(2, v), y[8 * i + 2] = round(v), y[8 * i + 3] = atan2(v, -1);
    y[8 * i + 4] = hypot(v, 3), y[8 * i + 5] = tan(v), y[8 * i + 6] = asin(v) + acos(v), y[8 * i + 7] = log10(v);
    is[3 * i] = isnan(v), is[3 * i + 1] = isinf(v), is[3 * i + 2] = isfinite(v);
  });
  std::vector<float> x = {0.f, -0.f, 2.5f, -3.5f, inf, -inf, nan, 1e-30f};
  for (const float v : numbers(500, -1, 1)) x.push_back(v);
  auto y = upload(std::vector<float>(8 * x.size()));
  DeviceBuffer<bool> is(3 * x.size());
  floats.launch({x.size()}, upload(x), y, is);
  const auto got = contents(y);
  const auto flags = is.to_vector();
  const auto like = [](float a, double b) {
    return std::isnan(b) ? std::isnan(a) : a == static_cast<float>(b) || std::abs(a - b) <= 1e-6 * std::abs(b);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    const double wanted[] = {v > 0   ? 1.0
                             : v < 0 ? -1.0
                                     : v,
                             std::copysign(2, v),
                             std::nearbyint(v),
                             std::atan2(v, -1),
                             std::hypot(v, 3),
                             std::tan(v),
                             std::asin(v) + std::acos(v),
                             std::log10(v)};
    for (std::size_t k = 0; k < 8; ++k)
      ASSERT_TRUE(like(got[8 * i + k], wanted[k])) << k << " of " << v << ": " << got[8 * i + k];
    ASSERT_EQ(std::signbit(got[8 * i + 1]), std::signbit(x[i])) << v;
    ASSERT_EQ(flags[3 * i], std::isnan(v));
    ASSERT_EQ(flags[3 * i + 1], std::isinf(v));
    ASSERT_EQ(flags[3 * i + 2], std::isfinite(v));
  }
  const auto integers = kernel("integers", [](Buffer<const std::uint64_t> wide, Buffer<std::uint64_t> zeros,
                                              Buffer<std::int8_t> narrow, Buffer<std::int16_t> signs) {
    auto i = global_id();
    zeros[i] = ctz(wide[i]);
    signs[i] = sign(cast<std::int16_t>(narrow[i]));
    narrow[i] = ctz(narrow[i]);
  });
  std::vector<std::uint64_t> w;
  std::vector<std::int8_t> n;
  for (int i = 0; i < 256; ++i) w.push_back(random() << (i % 64)), n.push_back(static_cast<std::int8_t>(i));
  w[0] = 0;
  auto zeros = upload(std::vector<std::uint64_t>(256));
  auto narrow = upload(n);
  auto signs = upload(std::vector<std::int16_t>(256));
  integers.launch({256}, upload(w), zeros, narrow, signs);
  for (std::size_t i = 0; i < 256; ++i) {
    ASSERT_EQ(contents(zeros)[i], static_cast<std::uint64_t>(std::countr_zero(w[i]))) << w[i];
    ASSERT_EQ(contents(narrow)[i], std::countr_zero(static_cast<std::uint8_t>(i)));
    ASSERT_EQ(contents(signs)[i], (n[i] > 0) - (n[i] < 0));
  }
}

TEST_P(OnEveryDevice, BitwiseAtomicsMatchTheReference) {
  const auto bits = kernel("bits", [](Buffer<const std::int32_t> x, Buffer<std::int32_t> out) {
    auto i = global_id();
    atomic_and(out, 0, x[i]);
    atomic_or(out, 1, x[i]);
    atomic_xor(out, 2, x[i]);
  });
  const std::vector<std::int32_t> x = integers(1000, 8, 11);
  std::vector<std::int32_t> out = {-1, 0, 0};
  auto y = upload(out);
  bits.launch({x.size()}, upload(x), y);
  for (const std::int32_t v : x) out[0] &= v, out[1] |= v, out[2] ^= v;
  EXPECT_EQ(contents(y), out);
}

TEST_P(OnEveryDevice, AtomicsOnDoublesMatchTheReference) {
  const auto sums = kernel("sums", block(64), [](Buffer<const double> x, Buffer<double> out, Buffer<double> before) {
    Shared<double> part(1);
    auto i = global_id();
    if_(thread_id() == 0, [&] { part[0] = 0; });
    barrier();
    atomic_add(part, 0, x[i]);
    barrier();
    if_(thread_id() == 0, [&] { atomic_add(out, 0, part[0]); });
    atomic_min(out, 1, x[i]);
    atomic_max(out, 2, x[i]);
    auto old = atomic_exchange(out, 3, x[i]);
    before[i] = old;
    atomic_cas(out, 4, -0.0, x[0]);
    auto zero = atomic_load(out, 5);
    if_(i == 0, [&] { out[6] = zero; });
  });
  const auto& can = device_info(GetParam()).can;
  std::vector<double> x(640), out = {0, 1e9, -1e9, 5, -0.0, -0.0, 1};
  for (double& v : x) v = static_cast<double>(static_cast<std::int64_t>(random() % 2000001) - 1000000);
  if (!can.f64 || !can.atomic_i64) {
    EXPECT_THROW(sums.launch({x.size()}, upload(x), upload(out), upload(x)), KernelError);
    return;
  }
  auto y = upload(out), before = upload(std::vector<double>(x.size()));
  sums.launch({x.size()}, upload(x), y, before);
  const auto got = contents(y);
  EXPECT_EQ(got[0],
            std::accumulate(x.begin(), x.end(), 0.0));  // the values are integers, so the sum is exact in any order
  EXPECT_EQ(got[1], *std::ranges::min_element(x));
  EXPECT_EQ(got[2], *std::ranges::max_element(x));
  auto left = x, found = contents(before);
  left.push_back(5), found.push_back(got[3]);
  std::ranges::sort(left), std::ranges::sort(found);
  EXPECT_EQ(found, left);
  EXPECT_EQ(got[4], x[0]) << "atomic_cas must compare bits";
  EXPECT_TRUE(std::signbit(got[5]) && std::signbit(got[6])) << "atomic_load must preserve -0";
}

TEST_P(OnEveryDevice, MapKernelRunsItsWholeExtentEvenIfIndicesAreUnused) {
  const auto counts = kernel("counts", [](Buffer<std::uint32_t> count) {
    atomic_add(count, 0, cast<std::uint32_t>(grid_size(1)));  // does not use global_id(1)
  });
  for (const std::array<std::uint64_t, 3> shape : {std::array<std::uint64_t, 3>{100, 5, 1}, {1, 33, 3}, {257, 1, 7}}) {
    auto count = upload(std::vector<std::uint32_t>(1));
    counts.launch({shape[0], shape[1], shape[2]}, count);
    EXPECT_EQ(contents(count)[0], shape[0] * shape[1] * shape[2] * shape[1]);
  }
}

TEST_P(OnEveryDevice, AcceptsParametersNamedLikeEmittedIdentifiers) {
  ir::Builder builder("names", ir::KernelKind::map);
  ir::Function fn;
  {
    ir::Builder::Scope scope(builder);
    const auto x = ir::buffer_param("x", DType::i32, ir::Access::read_write);
    const auto offset = ir::scalar_param("x_offset", DType::i32), size = ir::scalar_param("x_size", DType::i32);
    const auto extent = ir::scalar_param("extent_x", DType::i32);
    x.store(ir::global_id(), offset * 100 + size * 10 + extent + ir::cast(DType::i32, x.size()) * 1000);
    fn = builder.finish();
  }
  auto x = upload(std::vector<std::int32_t>(4));
  Kernel(fn).launch({4, 1, 1}, {x.view(), LaunchArgument::scalar(DType::i32, 1), LaunchArgument::scalar(DType::i32, 2),
                                LaunchArgument::scalar(DType::i32, 3)});
  EXPECT_EQ(contents(x), std::vector<std::int32_t>(4, 4123));
}

TEST_P(OnEveryDevice, BarriersWorkInUniformLoopsAndConditions) {
  const auto rotate =
      kernel("rotate", block(64),
             [](Buffer<const std::int32_t> x, Buffer<std::int32_t> y, Val<Index> rounds, Val<std::int32_t> twice) {
               Shared<std::int32_t> part(64);
               Var<std::int32_t> mine = x[global_id()];
               for_(0, rounds, [&](Val<Index>) {
                 part[thread_id()] = mine.get();
                 barrier();
                 mine = part[(thread_id() + 1) % 64];
                 barrier();
                 if_(twice == 1, [&] {
                   part[thread_id()] = mine.get();
                   barrier();
                   mine = part[(thread_id() + 1) % 64];
                   barrier();
                 });
               });
               y[global_id()] = mine.get();
             });
  std::vector<std::int32_t> data(256);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::int32_t>(7 * i);
  const auto x = upload(data);
  for (int twice : {0, 1})
    for (std::int64_t rounds : {0, 1, 5, 70}) {
      auto y = upload(std::vector<std::int32_t>(256, -1));
      rotate.launch(blocks(4), x, y, rounds, twice);
      const auto got = contents(y);
      for (std::size_t i = 0; i < 256; ++i) {
        const std::size_t from = i / 64 * 64 + (i + static_cast<std::size_t>(rounds * (1 + twice))) % 64;
        ASSERT_EQ(got[i], data[from]) << i << " after " << rounds << " rounds";
      }
    }
}

// Trip counts are not multiples of the number of rounds. Loops contain stores, barriers and loops, and bounds differ
// between threads.
TEST_P(OnEveryDevice, UnrolledLoopsComputeTheSame) {
  const auto loops = [](std::uint32_t rounds) {
    return kernel("unrolled_" + std::to_string(rounds), block(64),
                  [rounds](Buffer<const float> x, Buffer<float> y, Buffer<std::int32_t> z, Val<Index> width) {
                    auto i = global_id(), t = thread_id();
                    Shared<float> part(64);
                    Var<float> row = 0.0f, rotated = 0.0f, strided = 0.0f;
                    for_(0, width, unroll(rounds), [&](Val<Index> j) { row += x[j] * cast<float>(t); });
                    for_(t, width, 64, unroll(rounds), [&](Val<Index> j) { strided += x[j]; });
                    for_(0, width % 7, unroll(rounds), [&](Val<Index> j) {
                      part[t] = x[j] + cast<float>(t);
                      barrier();
                      for_(0, 3, unroll(rounds), [&](Val<Index> k) { rotated += part[(t + k) % 64]; });
                      barrier();
                    });
                    z[i] = 0;
                    for_(t % 5, t % 17, 2, unroll(rounds),
                         [&](Val<Index> j) { z[i] = z[i] * 3 + cast<std::int32_t>(j); });
                    y[3 * i] = row;
                    y[3 * i + 1] = strided;
                    y[3 * i + 2] = rotated;
                  });
  };
  for (const std::size_t width : {1, 3, 8, 13, 700}) {
    std::vector<float> x(width);
    for (std::size_t j = 0; j < width; ++j) x[j] = static_cast<float>((5 * j + 1) % 8);  // all sums are exact
    std::vector<float> want(3 * 128);
    std::vector<std::int32_t> visits(128);
    for (std::size_t i = 0; i < 128; ++i) {
      const std::size_t t = i % 64;
      for (std::size_t j = 0; j < width; ++j) want[3 * i] += x[j] * static_cast<float>(t);
      for (std::size_t j = t; j < width; j += 64) want[3 * i + 1] += x[j];
      for (std::size_t j = 0; j < width % 7; ++j)
        for (std::size_t k = 0; k < 3; ++k) want[3 * i + 2] += x[j] + static_cast<float>((t + k) % 64);
      for (std::size_t j = t % 5; j < t % 17; j += 2) visits[i] = visits[i] * 3 + static_cast<std::int32_t>(j);
    }
    const auto input = upload(x);
    for (const std::uint32_t rounds : {3u, 8u}) {
      SCOPED_TRACE("unroll(" + std::to_string(rounds) + "), width " + std::to_string(width));
      auto y = upload(std::vector<float>(3 * 128, -1));
      auto z = upload(std::vector<std::int32_t>(128, -1));
      loops(rounds).launch(blocks(2), input, y, z, width);
      EXPECT_EQ(contents(y), want);
      EXPECT_EQ(contents(z), visits);
    }
  }
}

/// Sums the columns of tiles, which are copied asynchronously in two stages.
template <class T, int each>
void check_async_copies() {
  constexpr int threads = 32, tile = threads * each, tiles = 5;
  const auto column_sums = kernel("column_sums", block(threads), [](Buffer<const T> x, Buffer<float> y) {
    aligned_vectors();
    Shared<T> stages(2 * tile);
    const auto copy = [=](const Val<Index>& t) {
      if_(t < static_cast<int>(tiles), [&] {
        copy_async<each>(stages, t % 2 * tile + thread_id() * each, x,
                         (block_id() * tiles + t) * tile + thread_id() * each);
      });
      async_commit();
    };
    std::vector<Var<float>> sums;
    for (int e = 0; e < each; ++e) sums.emplace_back(0.0f);
    copy(Val<Index>(0));
    for_(0, static_cast<int>(tiles), [&](Val<Index> t) {
      copy(t + 1);
      async_wait(1);
      barrier();
      // reads what other threads have copied
      for (int e = 0; e < each; ++e)
        sums[static_cast<std::size_t>(e)] += cast<float>(stages[t % 2 * tile + e * threads + thread_id()]);
      barrier();
    });
    for (int e = 0; e < each; ++e) y[block_id() * tile + e * threads + thread_id()] = sums[static_cast<std::size_t>(e)];
  });
  for (const std::size_t offset : {0, 1}) {  // without and with alignment to 16 bytes
    SCOPED_TRACE(std::string(dtype_name(dtype_v<T>)) + ", offset " + std::to_string(offset));
    constexpr std::size_t blocks_count = 3, n = blocks_count * tiles * tile;
    std::vector<T> data(n + offset);
    for (std::size_t k = 0; k < n; ++k) data[k + offset] = static_cast<T>(static_cast<float>(k * 7 % 13));
    const auto x = upload(data);
    auto y = upload(std::vector<float>(blocks_count * tile, 99.0f));
    BufferView from = kernel_argument(x, ir::Access::read);
    from.byte_offset += offset * sizeof(T), from.elements -= offset;
    column_sums.launch(blocks(blocks_count), from, y);
    std::vector<float> want(blocks_count * tile);
    for (std::size_t k = 0; k < n; ++k) want[k / (tiles * tile) * tile + k % tile] += static_cast<float>(k * 7 % 13);
    EXPECT_EQ(contents(y), want);
  }
}
TEST_P(OnEveryDevice, AsynchronousCopiesArriveBeforeTheWaitEnds) {
  check_async_copies<float, 4>();
  check_async_copies<half, 8>();
  check_async_copies<std::int32_t, 1>();
  check_async_copies<std::uint8_t, 8>();
}

/// Reverses groups of 2, 3 and 4 elements, in views that begin at different elements of their memory.
template <class T>
void check_vectors() {
  const auto reverse = kernel("reverse_groups", [](Buffer<const T> x, Buffer<T> y2, Buffer<T> y3, Buffer<T> y4) {
    aligned_vectors();
    auto i = global_id();
    auto two = x.template load<2>(2 * i);
    auto three = x.template load<3>(3 * i);
    auto four = x.template load<4>(4 * i);
    y2.store(2 * i, Vec<T, 2>(two[1], two[0]));
    y3.store(3 * i, Vec<T, 3>(three[2], three[1], three[0]));
    y4.store(4 * i, Vec<T, 4>(four[3], four[2], four[1], four[0]));
  });
  constexpr std::size_t groups = 37;
  for (const std::size_t offset : {0, 1, 2, 16}) {
    SCOPED_TRACE(std::string(dtype_name(dtype_v<T>)) + ", offset " + std::to_string(offset));
    std::vector<T> data(4 * groups + offset + 1);
    const std::vector<T> poison(data.size(), static_cast<T>(121.0f));
    for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<T>(static_cast<float>(k % 120 + 1));
    const auto x = upload(data);
    std::vector<DeviceBuffer<T>> y;
    std::vector<BufferView> views{kernel_argument(x, ir::Access::read)};
    for (int n = 2; n <= 4; ++n) {
      y.push_back(upload(poison));
      views.push_back(kernel_argument(y.back(), ir::Access::read_write));
    }
    for (BufferView& view : views) view.byte_offset += offset * sizeof(T), view.elements = 4 * groups;
    reverse.launch({groups}, views[0], views[1], views[2], views[3]);
    for (std::size_t n = 2; n <= 4; ++n) {
      std::vector<T> want = poison;
      for (std::size_t k = 0; k < groups * n; ++k) want[offset + k] = data[offset + k / n * n + n - 1 - k % n];
      EXPECT_EQ(std::memcmp(contents(y[n - 2]).data(), want.data(), sizeof(T) * want.size()), 0) << n << " elements";
    }
  }
}

TEST_P(OnEveryDevice, VectorsInAlignedAndOtherViewsAreTheSame) {
  check_vectors<float>();
  check_vectors<half>();
  check_vectors<bfloat16>();
  check_vectors<std::uint8_t>();
  check_vectors<std::int64_t>();
  if (device_info(GetParam()).can.f64) check_vectors<double>();
}

// The subgroups of a block take different branches. Runs with all subgroup widths of the device.
TEST_P(OnEveryDevice, SubgroupOperationsWorkInSubgroupUniformBranches) {
  constexpr std::size_t threads = 80, count = 3 * threads;
  const auto own_ways =
      kernel("own_ways", block(threads),
             [](Buffer<const std::int32_t> x, Buffer<std::int32_t> place, Buffer<std::int32_t> odd,
                Buffer<std::int32_t> looped, Buffer<std::int32_t> drained, Buffer<std::int32_t> decided) {
               auto i = global_id();
               Val<std::int32_t> v = x[i];
               place[i] = cast<std::int32_t>(subgroup_id() * 1000 + lane_id());
               if_(subgroup_id() % 2 == 1,
                   [&] { odd[i] = subgroup_sum(v) * 100 + subgroup_scan_exclusive(v) + subgroup_broadcast(v, 0); });
               Var<std::int32_t> sum = 0;
               for_(0, subgroup_id() + 1, [&](Val<Index> r) { sum += subgroup_max(v * cast<std::int32_t>(r + 1)); });
               looped[i] = sum.get();
               Var<std::int32_t> left = v, rounds = 0;
               while_([&] { return subgroup_any(left > 0); },
                      [&] {
                        rounds += subgroup_sum(left.get());
                        left = max(left - 1, 0);
                      });
               drained[i] = rounds.get();
               if_(subgroup_all(v < 9), [&] { decided[i] = subgroup_scan(v); });
             });
  const std::vector<std::int32_t> x = integers(count, 0, 9), poison(count, -1);
  const auto input = upload(x);
  auto place = upload(poison), odd = upload(poison), looped = upload(poison), drained = upload(poison),
       decided = upload(poison);
  own_ways.launch(blocks(3), input, place, odd, looped, drained, decided);
  // Reads the positions of the subgroups from the results.
  const auto at = contents(place), got_odd = contents(odd), got_looped = contents(looped),
             got_drained = contents(drained), got_decided = contents(decided);
  std::map<std::pair<std::size_t, int>, std::map<int, std::size_t>> subgroups;  // lane to thread
  for (std::size_t i = 0; i < count; ++i) subgroups[{i / threads, at[i] / 1000}][at[i] % 1000] = i;
  for (const auto& [name, lanes] : subgroups) {
    const int number = name.second;
    int sum = 0, most = 0, drain = 0, before = 0;
    ASSERT_EQ(lanes.begin()->first, 0);
    ASSERT_EQ(lanes.rbegin()->first + 1, static_cast<int>(lanes.size())) << "a lane is duplicated or missing";
    for (const auto& [lane, i] : lanes) {
      sum += x[i], most = std::max(most, x[i]);
      for (int left = x[i]; left > 0; --left) drain += left;
    }
    for (const auto& [lane, i] : lanes) {
      SCOPED_TRACE("thread " + std::to_string(i) + ", subgroup " + std::to_string(number));
      EXPECT_EQ(got_odd[i], number % 2 ? sum * 100 + before + x[lanes.at(0)] : -1);
      EXPECT_EQ(got_looped[i], most * (number + 1) * (number + 2) / 2);
      EXPECT_EQ(got_drained[i], drain);
      before += x[i];
      EXPECT_EQ(got_decided[i], most < 9 ? before : -1);
    }
  }
  // Conditions that differ within a subgroup are rejected on every device.
  const auto error = [](auto condition) {
    try {
      kernel("some_lanes", block(threads), [&](Buffer<const std::int32_t> x, Buffer<std::int32_t> y) {
        if_(condition(x), [&] { y[global_id()] = subgroup_sum(Val<std::int32_t>(x[global_id()])); });
      });
    } catch (const KernelError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string refused = "a subgroup operation is inside if_";
  EXPECT_NE(error([](auto) { return lane_id() < 4; }).find(refused), std::string::npos);
  EXPECT_NE(error([](auto x) { return x[global_id()] < 4; }).find(refused), std::string::npos);
  EXPECT_EQ(error([](auto x) { return x[subgroup_id()] < 4; }), "");
  EXPECT_EQ(error([](auto) { return subgroup_id() < 4; }), "");
}

// PoCL keeps the private memory of all threads of a block on one stack. If it is too large, the kernel must be rejected
// instead of crashing.
TEST_P(OnEveryDevice, RejectsLocalArraysTooLargeForTheDevice) {
  for (const int threads : {64, 1024}) {
    const auto reverse = kernel("reverse_by_hand", block(threads), [](Buffer<const int> x, Buffer<int> y) {
      LocalArray<int> mine(4096);
      auto i = global_id();
      for_(0, 4096, [&](auto k) { mine[k] = x[i] + cast<int>(k); });
      y[i] = mine[4095 - (x[i] & 1023)];
    });
    std::vector<int> x(static_cast<std::size_t>(threads)), want(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<int>(i * 7 % 1000), want[i] = x[i] + 4095 - (x[i] & 1023);
    const auto input = upload(x);
    DeviceBuffer<int> output(x.size());
    try {
      reverse.launch(blocks(1), input, output);
      EXPECT_EQ(contents(output), want);
    } catch (const KernelError& e) {
      EXPECT_NE(std::string(e.what()).find("16384 bytes each"), std::string::npos) << e.what();
      EXPECT_EQ(threads, 1024) << "1 MiB must be available";
    }
  }
}

constexpr std::int64_t sizes_of_algorithms[] = {0, 1, 2, 255, 257, 2047, 2048, 2049, 30011};

TEST_P(OnEveryDevice, ScansKeepTheOrderOfElements) {
  // Functions a * x + b of 16-bit numbers, with a in the upper half: their composition is not commutative.
  const auto compose = prefix_scan("compose", 1u << 16, [](Val<std::uint32_t> f, Val<std::uint32_t> g) {
    const auto a = f >> 16u, c = g >> 16u;
    return (a * c) << 16u | ((c * f + g) & 0xffffu);
  });
  std::mt19937 random(1);
  for (const std::int64_t n : sizes_of_algorithms) {
    std::vector<std::uint32_t> data(static_cast<std::size_t>(n)), wanted, before;
    std::uint32_t all = 1u << 16;
    for (std::uint32_t& f : data) {
      f = static_cast<std::uint32_t>(random());
      before.push_back(all);
      all = (all >> 16) * (f >> 16) << 16 | (((f >> 16) * all + f) & 0xffff);
      wanted.push_back(all);
    }
    auto x = upload(data);
    DeviceBuffer<std::uint32_t> out(n);
    out.fill(7);
    compose(x, out);
    ASSERT_EQ(contents(out), wanted) << n;
    compose.exclusive(x, out);
    ASSERT_EQ(contents(out), before) << n;
    compose(x, x);
    ASSERT_EQ(contents(x), wanted) << n << ", in place";
  }
  DeviceBuffer<std::uint32_t> x(3), small(2);
  EXPECT_THROW(compose(x, small), ArgumentError);
  EXPECT_THROW(compose(x, DeviceBuffer<float>(3)), KernelError);
}

TEST_P(OnEveryDevice, ReductionsAndCompactionsMatchPlainLoops) {
  const auto largest = reduction("largest", std::int32_t{-1000}, [](Val<int> a, Val<int> b) { return max(a, b); });
  const int odd = 3;  // a constant of the kernel
  const auto multiples = compaction("multiples", [odd](Val<int> v) { return v % odd == 0; });
  for (const std::int64_t n : sizes_of_algorithms) {
    std::vector<int> data(static_cast<std::size_t>(n)), wanted;
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int>(i * 7919 % 10007) - 5000;
    for (const int v : data)
      if (v % odd == 0) wanted.push_back(v);
    const auto x = upload(data);
    EXPECT_EQ(largest(x), data.empty() ? -1000 : std::max(-1000, *std::max_element(data.begin(), data.end()))) << n;
    DeviceBuffer<int> out(n + 1);
    out.fill(-1);
    ASSERT_EQ(multiples(x, out), wanted.size()) << n;
    std::vector<int> got = contents(out);
    got.resize(wanted.size());
    EXPECT_EQ(got, wanted) << n;
  }
  DeviceBuffer<int> x({1, 2, 3}), one(1), two(2);
  largest(x, one);
  EXPECT_EQ(contents(one), std::vector<int>{3});
  EXPECT_THROW(largest(x, two), ArgumentError);
  EXPECT_THROW(multiples(x, two), ArgumentError);
}

}  // namespace
}  // namespace tessera
