// SPDX-License-Identifier: Apache-2.0
// Tasks on devices with little memory, and on devices that are lost. Each test runs on fake GPUs in its own process.
#include <gtest/gtest.h>

#include "tessera/array/functions.h"
#include "tessera/base/error.h"
#include "tessera/task/region.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/fake_gpus.h"

namespace tessera {
namespace {

constexpr std::int64_t mebi = 1 << 20;
const Device gpu{Backend::cuda, 0};

// Returns six arrays of 1 MiB. Their newest contents are only on the GPU, unless `read` is true.
std::vector<Array> left_by_tasks(bool read) {
  std::vector<Array> all;
  for (int i = 0; i < 6; ++i) all.push_back(Array::full({mebi / 4}, i, DType::f32, Device{}).eval());
  Region r({.scope = cuda(0)});
  for (Array& a : all) r.spawn([](Array& x) { x += 1; }, inout(a));
  r.wait();
  if (read)
    for (const Array& a : all) a.to_vector<float>();
  return all;
}

TEST(TaskMemory, ReplicasAreEvictedBeforeMemoryRunsOut) {
  test::in_process(test::four_gpus(), [] {
    for (const bool read : {true, false}) {
      const std::vector<Array> left = left_by_tasks(read);
      set_memory_limit(gpu, memory_stats(gpu).live_bytes + mebi);
      const TaskCopies before = task_copies();
      // The function of a task allocates memory in addition to its arguments.
      const Task<float> one =
          spawn({.scope = cuda(0)}, [] { return sum(Array::ones({mebi}, DType::f32).eval()).item<float>(); });
      EXPECT_EQ(one.fetch(), mebi);
      // Replicas that are also valid on the home device are freed without a copy.
      EXPECT_EQ(task_copies().evicted - before.evicted > 0, !read);
      set_memory_limit(gpu, 0);
      for (std::size_t i = 0; i < left.size(); ++i)
        EXPECT_EQ(left[i].to_vector<float>().at(i), static_cast<float>(i) + 1) << (read ? "read" : "not read");
    }
  });
}

TEST(TaskMemory, ErrorNamesTheTaskThatDoesNotFitAndLaterTasksRun) {
  test::in_process(test::four_gpus(), [] {
    std::vector<Array> left = left_by_tasks(false);
    set_memory_limit(gpu, memory_stats(gpu).live_bytes + 2 * mebi);
    const Task<void> large = spawn({.scope = cuda(0), .name = "hoard"}, [] { Array::zeros({64 * mebi}).eval(); });
    test::expect_throw<Error>([&] { large.fetch(); }, {"hoard", "cuda:0", "not have enough memory"});
    Array& first = left[0];
    spawn(
        {.scope = cuda(0)}, [](Array& x) { x *= 2; }, inout(first))
        .fetch();
    set_memory_limit(gpu, 0);
    for (std::size_t i = 0; i < left.size(); ++i)
      EXPECT_EQ(left[i].to_vector<float>().at(0), (static_cast<float>(i) + 1) * (i == 0 ? 2 : 1));
  });
}

// Arguments of different tasks fit into memory one after another, although all of them together do not. A replica can
// still be evicted if an earlier attempt to copy it failed.
TEST(TaskMemory, ArgumentsAreEvictedBetweenTasks) {
  test::in_process(test::four_gpus(), [] {
    std::vector<Array> all;
    for (int i = 0; i < 12; ++i) all.push_back(Array::full({mebi / 4}, i, DType::f32, Device{}).eval());
    Array::zeros({1}, DType::f32, gpu).eval();
    set_memory_limit(gpu, memory_stats(gpu).live_bytes + memory_stats(gpu).cached_bytes + 3 * mebi);
    for (int round = 0; round < 3; ++round) {
      Region r({.scope = cuda(0)});
      for (Array& a : all) r.spawn([](Array& x) { x += 1; }, inout(a)).fetch();
      r.wait();
    }
    set_memory_limit(gpu, 0);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].to_vector<float>().at(7), static_cast<float>(i) + 3);
  });
}

TEST(TaskMemory, OnlyTasksOfTheLostDeviceFail) {
  test::in_process(test::four_gpus({{"TESSERA_FAKE_FAULT", "lost=40@0"}}), [] {
    Array there = Array::zeros({1000}, DType::f32, Device{}).eval(), here = there.copy().eval(),
          cpu = there.copy().eval();
    Region r({.scope = cuda(all)});
    std::vector<Task<void>> lost, fine;
    for (int i = 0; i < 60; ++i) {
      lost.push_back(r.spawn(
          {.scope = cuda(0), .name = "on the first"}, [](Array& x) { x += 1; }, inout(there)));
      fine.push_back(r.spawn(
          {.scope = cuda(1)}, [](Array& x) { x += 1; }, inout(here)));
      fine.push_back(r.spawn(
          {.scope = tessera::cpu()}, [](Array& x) { x += 1; }, inout(cpu)));
    }
    test::expect_throw<Error>([&] { r.wait(); }, {"cuda:0", "lost", "on the first"});
    for (const Task<void>& t : fine) EXPECT_NO_THROW(t.fetch());
    EXPECT_EQ(here.to_vector<float>().at(3), 60);
    EXPECT_EQ(cpu.to_vector<float>().at(3), 60);
    test::expect_throw<DeviceLost>([&] { there.to_vector<float>(); }, {"cuda:0", "lost", "only"});
    // Other devices are not affected.
    EXPECT_EQ(spawn({.scope = cuda(1)}, [] { return sum(Array::ones({100})).item<float>(); }).fetch(), 100);
  });
}

}  // namespace
}  // namespace tessera
