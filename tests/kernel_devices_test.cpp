// SPDX-License-Identifier: Apache-2.0
// Kernels through the user's language on every device: aliasing, integers at their limits, barriers in loops and
// conditions.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/ir/value.h"
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

TEST_P(OnEveryDevice, TheSameBufferTwiceRunsAndPartialOverlapIsRefused) {
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
    FAIL() << "partial overlap with a writer was not refused";
  } catch (const KernelError& e) {
    EXPECT_NE(std::string(e.what()).find("saxpy"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("overlap"), std::string::npos) << e.what();
  }
  EXPECT_EQ(contents(x), got) << "nothing ran";
  back.byte_offset = whole.byte_offset + 500 * sizeof(float), back.elements = 500, front.elements = 500;
  saxpy.launch({500}, front, back, 1.0f);
  EXPECT_EQ(contents(x)[700], got[700] + got[200]);
}

TEST_P(OnEveryDevice, IntegersThatWrapWithinAChunkOfLanes) {
  const auto wrap = kernel("wrap", [](Buffer<std::int64_t> wide, Buffer<std::int8_t> narrow) {
    auto i = global_id();
    wide[i] = cast<std::int64_t>(cast<std::int32_t>(i) + 2147483640);
    narrow[i] = cast<std::int8_t>(i) << 9;  // shifts count modulo the width: by 1
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

TEST_P(OnEveryDevice, AMapKernelHasTheThreadsOfItsExtentWhicheverPlacesItAsksFor) {
  const auto counts = kernel("counts", [](Buffer<std::uint32_t> count) {
    atomic_add(count, 0, cast<std::uint32_t>(grid_size(1)));  // and no global_id(1)
  });
  for (const std::array<std::uint64_t, 3> shape : {std::array<std::uint64_t, 3>{100, 5, 1}, {1, 33, 3}, {257, 1, 7}}) {
    auto count = upload(std::vector<std::uint32_t>(1));
    counts.launch({shape[0], shape[1], shape[2]}, count);
    EXPECT_EQ(contents(count)[0], shape[0] * shape[1] * shape[2] * shape[1]);
  }
}

TEST_P(OnEveryDevice, NamesThatLookLikeTheEmittersOwn) {
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

TEST_P(OnEveryDevice, BarriersInUniformLoopsAndConditions) {
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

// Each subgroup goes its own way, of which the block knows nothing: with whatever subgroups the device has.
TEST_P(OnEveryDevice, SubgroupOperationsWhereOnlyTheSubgroupComes) {
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
  // The subgroups are where the device says.
  const auto at = contents(place), got_odd = contents(odd), got_looped = contents(looped),
             got_drained = contents(drained), got_decided = contents(decided);
  std::map<std::pair<std::size_t, int>, std::map<int, std::size_t>> subgroups;  // threads by lane
  for (std::size_t i = 0; i < count; ++i) subgroups[{i / threads, at[i] / 1000}][at[i] % 1000] = i;
  for (const auto& [name, lanes] : subgroups) {
    const int number = name.second;
    int sum = 0, most = 0, drain = 0, before = 0;
    ASSERT_EQ(lanes.begin()->first, 0);
    ASSERT_EQ(lanes.rbegin()->first + 1, static_cast<int>(lanes.size())) << "a lane stands twice or not at all";
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
  // What lanes of one subgroup decide differently stays refused, wherever it would run.
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
  const std::string refused = "a subgroup operation stands under if_";
  EXPECT_NE(error([](auto) { return lane_id() < 4; }).find(refused), std::string::npos);
  EXPECT_NE(error([](auto x) { return x[global_id()] < 4; }).find(refused), std::string::npos);
  EXPECT_EQ(error([](auto x) { return x[subgroup_id()] < 4; }), "");
  EXPECT_EQ(error([](auto) { return subgroup_id() < 4; }), "");
}

// PoCL puts what a block's threads have of their own on one stack: more than fits is refused, not a crash.
TEST_P(OnEveryDevice, LocalMemoryIsThereOrRefused) {
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
      EXPECT_EQ(threads, 1024) << "one MiB is little";
    }
  }
}

}  // namespace
}  // namespace tessera
