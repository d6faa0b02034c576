// SPDX-License-Identifier: Apache-2.0
// Placement of tasks that may run on several GPUs. Each test runs on fake GPUs of different speeds in its own process.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "tessera/array/functions.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/task/block_array.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/this_task.h"
#include "tests/support/fake_gpus.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t launches() {
  const auto count =
      os::Library::open(TESSERA_FAKES "/libfake_cuda.so").function<std::uint64_t(const char*)>("tessera_fake_count");
  return count("launches");
}
template <class F>
double launches_of(F&& work) {
  const std::uint64_t before = launches();
  work();
  return static_cast<double>(launches() - before);
}
/// Four GPUs on which a kernel takes one, one, two and four units. A unit is 6 ms.
constexpr double unit = 6e-3, speed = 1 + 1 + 0.5 + 0.25;
void with_unequal_gpus(const std::function<void()>& body) {
  test::in_process(test::four_gpus({{"TESSERA_FAKE_DEVICES", "1,cuda=4"},
                                    {"TESSERA_FAKE_KERNEL_US", "6000,6000,12000,24000"},
                                    {"TESSERA_FAKE_DELAY_US", "0"}}),
                   body);
}

TEST(Placement, CholeskyOnUnequalGpusTakesAtMostTwiceTheLowerBound) {
  with_unequal_gpus([] {
    constexpr std::int64_t tiles = 16, side = 4, n = tiles * side;
    const Scope gpus = cuda(all);
    const Array x = random_uniform({n, n}, 1, -1, 1, Device{});
    const Array spd = (matmul(x, x.transpose()) + n * BlockArray::identity(n, {n, n}).gather(Device{})).eval();
    // Measures the launches of each task. The first run compiles the kernels.
    double factor = 0, solve = 0, update = 0;
    for (const Device d : gpus.devices()) {
      const DeviceScope there(d);
      const auto tile = [&] { return spd.slice(0, 0, side).slice(1, 0, side).copy().to(d).eval(); };
      Array t = tile(), l = tile(), other = tile(), failure = Array::zeros({1}, DType::i32).eval();
      for (int round = 0; round < 2; ++round) {
        factor = launches_of([&] { cholesky_into(l, failure); });
        solve = launches_of([&] {
          solve_triangular_into(l, t, {.side = Side::right, .triangle = Triangle::lower, .transposed = true});
        });
        update = launches_of([&] { multiply_into(other, t, t.transpose(), {.alpha = -1}); });
      }
      Queue::of(d).finish();
    }
    double best = 1e9;
    for (int attempt = 0; attempt < 3 && best > 2; ++attempt) {  // repeat if the machine was busy
      BlockArray a = BlockArray::from(spd, {side, side}, gpus);
      synchronize(gpus);
      const TaskCopies before = task_copies();
      const auto begin = Clock::now();
      const double all_launches = launches_of([&] {
        cholesky_into(a);
        synchronize(gpus);
      });
      const double took = std::chrono::duration<double>(Clock::now() - begin).count();
      const double path = tiles * factor + (tiles - 1) * (solve + update), work = all_launches;
      const double possible = std::max(work / speed, path) * unit;
      best = std::min(best, took / possible);
      std::printf(
          "%g launches, %g on the critical path: lower bound %.0f ms, measured %.0f ms, ratio %.2f; "
          "%llu copies\n",
          work, path, 1e3 * possible, 1e3 * took, took / possible,
          static_cast<unsigned long long>(task_copies().fetched - before.fetched));
      const float off = max(abs(a.gather(Device{}) - cholesky(spd))).item<float>();
      EXPECT_LT(off, 1e-4f);
    }
    // The ratio is only meaningful on an otherwise idle machine, so it is checked only in long runs.
    if (std::getenv("TESSERA_TEST_LONG")) {
      EXPECT_LT(best, 2);
    }
  });
}

// For tasks without data, fast devices run more tasks than slow ones, and no device is idle.
TEST(Placement, TasksWithoutDataRunWhereTheyFinishFirst) {
  with_unequal_gpus([] {
    std::map<Device, int> of_device;
    const auto work = [] { return (Array::arange(16) * 2).eval(); };
    for (int round = 0; round < 2; ++round) {  // the first round measures the durations
      of_device.clear();
      std::vector<Task<Array>> tasks;
      Region r({.scope = cuda(all)});
      for (int i = 0; i < 44; ++i) tasks.push_back(r.spawn(work));
      r.wait();
      for (const auto& t : tasks) ++of_device[t.device()];
    }
    for (const Device d : cuda(all).devices()) std::printf("%s: %d\n", to_string(d).c_str(), of_device[d]);
    ASSERT_EQ(of_device.size(), 4u);
    const Device fast{Backend::cuda, 0}, slow{Backend::cuda, 3};
    EXPECT_GT(of_device[fast], of_device[slow]);
  });
}

TEST(Placement, TasksStayWithTheirDataUnlessAnotherDeviceIsFaster) {
  with_unequal_gpus([] {
    const Device slow{Backend::cuda, 3};
    Array x = Array::zeros({1 << 20}, DType::f32, slow);
    x.eval();
    Region r({.scope = cuda(all)});
    for (int i = 0; i < 3; ++i) {
      const Task<Device> one = r.spawn([](Array& v) { return v += 1, this_task::device(); }, inout(x));
      EXPECT_EQ(one.fetch(), slow) << "the other durations are not known yet";
    }
    r.wait();
    EXPECT_EQ(x.to_vector<float>().at(77), 3);
  });
}

}  // namespace
}  // namespace tessera
