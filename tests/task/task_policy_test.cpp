// SPDX-License-Identifier: Apache-2.0
// User-defined placement policies. Each test runs on four fake GPUs in its own process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "tessera/array/functions.h"
#include "tessera/kernel/kernel.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/task/block_array.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/fake_gpus.h"

namespace tessera {
namespace {

using test::expect_throw;
using Floats = std::vector<float>;

Device gpu(int i) { return {Backend::cuda, i}; }
void with_gpus(const char* kernel_us, const std::function<void()>& body) {
  test::in_process(test::four_gpus({{"TESSERA_FAKE_DEVICES", "1,cuda=4"},
                                    {"TESSERA_FAKE_KERNEL_US", kernel_us},
                                    {"TESSERA_FAKE_DELAY_US", "0"}}),
                   body);
}
const auto where = [] { return this_task::device(); };

/// Chooses the candidates in round-robin order, and records the requests.
struct InTurn : PlacementPolicy {
  Device choose(const TaskToPlace& task) override {
    const std::lock_guard hold(lock);
    asked.push_back(task);
    return task.candidates[next++ % task.candidates.size()].device;
  }
  std::mutex lock;
  std::vector<TaskToPlace> asked;
  std::size_t next = 0;
};

TEST(Policy, UserPolicyPlacesEveryTask) {
  with_gpus("0", [] {
    const auto policy = std::make_shared<InTurn>();
    const auto twice = kernel("twice", [](Buffer<float> x) { x[global_id()] *= 2; });
    Array x = Array::ones({100}, DType::f32, Device{}).copy().eval(), sums = (x * 0).eval();
    {
      Region r({.scope = cuda(all), .policy = policy});
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(r.spawn(
                       {.name = "add"}, [](const Array& v, Array& to) { return to += v, this_task::device(); }, in(x),
                       inout(sums))
                      .fetch(),
                  gpu(2 * i % 4));
        EXPECT_EQ(r.spawn({.priority = 2}, twice, Extent{100}, x).device(), gpu((2 * i + 1) % 4));
      }
      EXPECT_EQ(r.spawn({.scope = cpu()}, where).fetch(), Device{}) << "a scope with one device";
    }
    EXPECT_EQ(x.to_vector<float>(), Floats(100, 256));
    EXPECT_EQ(sums.to_vector<float>(), Floats(100, 255));
    ASSERT_EQ(policy->asked.size(), 17u);
    EXPECT_EQ(policy->asked[0].name, "add");
    EXPECT_EQ(policy->asked[0].priority, 0);
    EXPECT_EQ(policy->asked[1].name, "twice");
    EXPECT_EQ(policy->asked[1].priority, 2);
    EXPECT_EQ(policy->asked[16].candidates.size(), 1u);
    EXPECT_NE(policy->asked[16].name.find("task_policy_test.cpp:"), std::string::npos) << policy->asked[16].name;
    EXPECT_EQ(spawn({.scope = cuda(all)}, where).fetch().backend, Backend::cuda);
    EXPECT_EQ(policy->asked.size(), 17u) << "the policy belongs to the region";
  });
}

TEST(Policy, ReceivesLoadAndDataOfEachCandidate) {
  with_gpus("1000,1000,20000,20000", [] {
    const auto policy = std::make_shared<InTurn>();
    Array x = Array::ones({1000}, DType::f32, gpu(2)).copy().eval(),
          y = Array::ones({500}, DType::f32, Device{}).copy().eval();
    const TaskOptions options{.scope = cuda(all), .policy = policy};
    Region r(options);
    const auto work = [](const Array& a, Array& b) { b += sum(a).item<float>() * 0; };
    for (int i = 0; i < 4; ++i) r.spawn(work, in(x), inout(y)).wait();
    const TaskToPlace& first = policy->asked.at(0);
    EXPECT_EQ(first.default_device, gpu(0))
        << "most data is outside of the scope, so the least loaded device must be chosen";
    EXPECT_EQ(first.bytes, 4000u + 3 * 2000);
    for (const auto& c : first.candidates) {
      EXPECT_EQ(c.bytes, c.device == gpu(2) ? 4000u : 0u);
      EXPECT_EQ(c.median_duration.count(), 0);
      EXPECT_EQ(c.waiting, 0u);
    }
    const TaskToPlace& last = policy->asked.at(3);  // y was written on the third device
    for (const auto& c : last.candidates)
      EXPECT_EQ(c.bytes, c.device == gpu(2) ? 4000u + 6000 : c.device == gpu(3) ? 0u : 4000u) << to_string(c.device);
    for (int i = 0; i < 8; ++i) r.spawn(work, in(x), inout(y)).wait();  // the first on each device compiled
    synchronize(cuda(all));
    r.spawn(work, in(x), inout(y)).wait();
    r.spawn(where).wait();
    const TaskToPlace& known = policy->asked.back();
    EXPECT_EQ(known.bytes, 0u);
    for (const auto& c : known.candidates) EXPECT_GT(c.median_duration.count(), 0) << to_string(c.device);
    EXPECT_LT(known.candidates[0].median_duration, known.candidates[3].median_duration);
    // Waiting tasks are counted.
    std::atomic<bool> go = false;
    const Task<void> first_one = r.spawn({.scope = cuda(1)}, [&] {
      while (!go) std::this_thread::yield();
    });
    const Task<void> second_one = r.spawn(
        {.scope = cuda(1)}, [](int) {}, first_one.then([] { return 1; }));
    r.spawn({.scope = cuda(3)}, where).wait();
    r.spawn(where).wait();
    EXPECT_EQ(policy->asked.back().candidates[1].waiting, 2u);
    EXPECT_EQ(policy->asked.back().candidates[3].waiting, 0u);
    go = true;
    r.wait();
  });
}

TEST(Policy, ExceptionsAndInvalidChoicesAreThrownBySpawn) {
  with_gpus("0", [] {
    struct Odd : PlacementPolicy {
      Device choose(const TaskToPlace& task) override {
        if (task.name == "breaks") throw std::out_of_range("on purpose");
        return task.name == "elsewhere" ? gpu(3) : task.default_device;
      }
    };
    Array x = Array::ones({10}).copy().eval();
    Region r({.scope = cuda({0, 1}), .policy = std::make_shared<Odd>()});
    const auto add = [](Array& v) { v += 1; };
    r.spawn(add, inout(x));
    expect_throw<std::out_of_range>([&] { r.spawn({.name = "breaks"}, add, inout(x)); }, {"on purpose"});
    expect_throw<DeviceError>([&] { r.spawn({.name = "elsewhere"}, add, inout(x)); },
                              {"elsewhere", "policy chose = cuda:3", "cuda:0, cuda:1", "cannot run"});
    r.spawn(add, inout(x));
    r.wait();
    EXPECT_EQ(x.to_vector<float>(), Floats(10, 3));
  });
}

TEST(Policy, IsInheritedByNestedTasksAndBlockAlgorithms) {
  with_gpus("0", [] {
    const auto policy = std::make_shared<InTurn>();
    const Array m = random_uniform({64, 64}, 3, -1, 1, Device{});
    const Array spd = (matmul(m, m.transpose()) + 64 * BlockArray::identity(64, {64, 64}).gather(Device{})).eval();
    const With in_force = with({.scope = cuda(all), .policy = policy});
    const Task<Device> inner = spawn([] { return spawn(where).fetch(); });
    EXPECT_EQ(inner.device(), gpu(0));
    EXPECT_EQ(inner.fetch(), gpu(1));
    BlockArray a = BlockArray::from(spd, {16, 16}, cuda(all));
    policy->asked.clear();
    cholesky_into(a);
    EXPECT_GE(policy->asked.size(), 20u) << "4 factors, 6 solutions, 10 updates";
    const With at_home = with({.scope = cpu()});
    EXPECT_LT(max(abs(a.gather(Device{}) - cholesky(spd))).item<float>(), 1e-4f);
  });
}

TEST(Policy, PlacedTasksDoNotMigrate) {
  with_gpus("1000,1000,2000,8000", [] {
    struct Slowest : PlacementPolicy {
      Device choose(const TaskToPlace& task) override { return task.candidates.back().device; }
    };
    const auto work = [](Array& v) { return v += 1, this_task::device(); };
    Array x = Array::ones({16}).copy().eval();
    for (const Device d : cuda(all).devices())
      spawn({.scope = Scope(d)}, work, inout(x)).wait();  // measures the durations on all devices
    Region r({.scope = cuda(all), .policy = std::make_shared<Slowest>()});
    std::vector<Array> all_of(8);
    std::vector<Task<Device>> tasks;
    for (Array& a : all_of) tasks.push_back(r.spawn(work, inout(a = Array::ones({16}).copy().eval())));
    for (const auto& t : tasks) EXPECT_EQ(t.fetch(), gpu(3));
  });
}

}  // namespace
}  // namespace tessera
