// SPDX-License-Identifier: Apache-2.0
// Prefetching batches: order, contents, ownership and errors. Also tests that a batch is copied while kernels of the
// previous one are running. Uses a driver with delays that checks every access and can be paused.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <ranges>

#include "tessera/array/prefetch.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/ir/value.h"
#include "tests/support/device_fixture.h"

namespace tessera {
namespace {

using test::DeviceTest;
using test::expect_throw;

struct Batch {
  Array x, label;
  int number;
};
class Prefetch : public DeviceTest {
 protected:
  std::vector<Batch> batches(int n, Device device, std::int64_t size = 1000) {
    std::mt19937_64 random(test_seed());
    std::vector<Batch> out;
    for (int i = 0; i < n; ++i) {
      std::vector<float> x(static_cast<std::size_t>(size + i));
      for (float& v : x) v = static_cast<float>(random() % 1000);
      out.push_back({Array::from(x, {}, device), Array::from({i, i + 1}, {}, device), i});
    }
    return out;
  }
};
std::vector<float> values(const Array& a) { return a.to_vector<float>(); }

TEST_F(Prefetch, ReturnsUnchangedBatchesInOrder) {
  for (const std::size_t slots : {1, 2, 3, 20}) {
    const Device cpu = fresh(Backend::cpu), gpu = fresh();
    behaviour(gpu)->max_delay_us = 500;
    const auto source = batches(10, cpu);
    Prefetcher ahead = prefetch(source, gpu, {.slots = slots});
    for (int epoch = 0; epoch < 2; ++epoch) {
      int n = 0;
      for (auto batch : ahead) {
        EXPECT_EQ(batch.number, n);
        EXPECT_EQ(device_of(batch), gpu);
        EXPECT_EQ(values(batch.x), values(source[static_cast<std::size_t>(n)].x));
        EXPECT_EQ(batch.label.to_vector<int>(), (std::vector<int>{n, n + 1}));
        ++n;
      }
      EXPECT_EQ(n, 10);
    }
  }
  const Device cpu = fresh(Backend::cpu), gpu = fresh();
  for (const auto& batch : prefetch(std::vector<Batch>{}, gpu)) FAIL() << batch.number;
  int odd = 0;
  for (const auto& batch :
       prefetch(batches(9, cpu) | std::views::filter([](const Batch& b) { return b.number % 2; }), gpu))
    EXPECT_EQ(batch.number, 2 * odd++ + 1);
  EXPECT_EQ(odd, 4);
  EXPECT_THROW(prefetch(std::vector<Batch>{}, gpu, {.slots = 0}), ArgumentError);
  EXPECT_THROW(prefetch(std::vector<Batch>{}, Device{Backend::cuda, 999}), DeviceError);
}

TEST_F(Prefetch, CopiesNextBatchWhileKernelsOfPreviousRun) {
  const Device cpu = fresh(Backend::cpu), gpu = fresh();
  std::atomic<int> kernels = 0;
  test::set_body("busy", [&](const test::Launch&) { ++kernels; });
  ir::Builder builder("busy", ir::KernelKind::map);
  std::optional<Kernel> busy;
  {
    ir::Builder::Scope scope(builder);
    const auto x = ir::buffer_param("x", DType::f32, ir::Access::read_write);
    x.store(ir::global_id(), x.load(ir::global_id()) + 1.0f);
    busy.emplace(builder.finish());
  }
  const auto source = batches(5, cpu);
  int pulled = 0;
  const auto counted = source | std::views::transform([&](const Batch& b) { return ++pulled, b; });
  std::vector<Batch> held;
  busy->launch({1, 1, 1}, {Array::from({1.0f}, {}, gpu).view()});  // compile it
  Queue::of(gpu).finish();
  kernels = 0;
  behaviour(gpu)->hold();  // pause all queues
  const Placement scope;
  for (const auto& batch : prefetch(counted, gpu)) {
    busy->launch({8, 1, 1}, {batch.x.view_for_writing()});
    held.push_back(batch);
    const int n = static_cast<int>(held.size());
    EXPECT_EQ(kernels, 0) << "no kernel has run";
    EXPECT_EQ(pulled, std::min(n + 1, 5)) << "the next batch was requested";
    std::uint64_t copies = 0;
    for (const auto& c : scope.log().copies)
      if (c.device == gpu) copies = c.to_device_count;
    EXPECT_EQ(copies, 2u * static_cast<unsigned>(std::min(n + 1, 5))) << "the copies of its two arrays were queued";
    if (n == 5) behaviour(gpu)->resume();  // before the wait for the prefetcher's queue
  }
  Queue::of(gpu).finish();
  EXPECT_EQ(kernels, 5);
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(values(held[i].x), values(source[i].x)) << "batches in use are unchanged";
}

TEST_F(Prefetch, DoesNotCopyBatchesAlreadyOnDevice) {
  const Device gpu = fresh();
  const auto source = batches(6, gpu);
  const Placement scope;
  std::size_t n = 0;
  for (auto batch : prefetch(source, gpu, {.slots = 3})) EXPECT_EQ(batch.x.source(), source[n++].x.source());
  EXPECT_EQ(n, 6u);
  EXPECT_TRUE(scope.log().copies.empty());
  for (const Batch& b : source) EXPECT_EQ(values(b.x).size(), 1000u + static_cast<std::size_t>(b.number));
}

TEST_F(Prefetch, ThrowsSourceErrorsInOrderAndAllowsEarlyExit) {
  const Device cpu = fresh(Backend::cpu), gpu = fresh();
  behaviour(gpu)->max_delay_us = 500;
  const auto source = batches(8, cpu);
  const auto failing = source | std::views::transform([](const Batch& b) {
                         if (b.number == 3) throw std::runtime_error("batch 3 is broken");
                         return b;
                       });
  int seen = 0;
  try {
    for (const auto& batch : prefetch(failing, gpu, {.slots = 4})) EXPECT_EQ(batch.number, seen++);
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "batch 3 is broken");
  }
  EXPECT_EQ(seen, 3) << "the batches before it were returned";
  std::optional<Batch> kept;
  for (const auto& batch : prefetch(source, gpu, {.slots = 4})) {
    kept = batch;
    if (batch.number == 1) break;
  }
  EXPECT_EQ(values(kept->x), values(source[1].x));
}

TEST_F(Prefetch, RetriesBatchAfterOutOfMemory) {
  const Device cpu = fresh(Backend::cpu), gpu = fresh();
  const auto source = batches(6, cpu);
  int refusals = 0;
  const auto short_of_memory = source | std::views::transform([&](const Batch& b) {
                                 if (b.number >= 2 && refusals < b.number - 1) {
                                   ++refusals;
                                   fail<OutOfMemory>({.operation = "batch", .wrong = "there is no memory now"});
                                 }
                                 return b;
                               });
  int seen = 0;
  for (const auto& batch : prefetch(short_of_memory, gpu, {.slots = 2})) EXPECT_EQ(batch.number, seen++);
  EXPECT_EQ(seen, 6);
  EXPECT_EQ(refusals, 4);
}

TEST_F(Prefetch, LimitsBatchesInMemory) {
  const Device cpu = fresh(Backend::cpu), gpu = fresh();
  const auto source = batches(6, cpu, 1 << 18);  // 1 MiB each
  std::uint64_t most = 0;
  for (const auto& batch : prefetch(source, gpu, {.slots = 3})) {
    most = std::max(most, memory_stats(gpu).live_bytes);
    EXPECT_EQ(values(batch.x), values(source[static_cast<std::size_t>(batch.number)].x));
  }
  EXPECT_LE(most, 4 * ((std::uint64_t{1} << 20) * 5 / 4 + 1024));
  EXPECT_EQ(memory_stats(gpu).live_bytes, 0u);
  trim(gpu);
  set_memory_limit(gpu, (std::uint64_t{1} << 20) * 3 / 2);  // enough for one batch, but not for two
  int n = 0;
  for (const auto& batch : prefetch(source, gpu, {.slots = 3})) EXPECT_EQ(batch.number, n++);
  EXPECT_EQ(n, 6);
  set_memory_limit(gpu, 1024);
  expect_throw<OutOfMemory>(
      [&] {
        for (const auto& batch : prefetch(source, gpu)) FAIL() << batch.number;
      },
      {"1"});
}

}  // namespace
}  // namespace tessera
