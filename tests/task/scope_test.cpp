// SPDX-License-Identifier: Apache-2.0
// Scopes: sets of devices, placement of tasks, and errors if no device is possible. Each test runs on simulated devices
// in its own process.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/task/pinned.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/task.h"
#include "tessera/task/this_task.h"
#include "tessera/task/variants.h"
#include "tests/support/errors.h"
#include "tests/support/fresh_process.h"

namespace tessera {
namespace {

using test::add;
using test::expect_contains;
using test::expect_throw;
using test::in_fresh_process;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
const Device cuda0{Backend::cuda, 0}, cuda1{Backend::cuda, 1}, cuda2{Backend::cuda, 2}, rocm0{Backend::rocm, 0};

/// Calls `body` with three NVIDIA GPUs and an AMD GPU.
template <class F>
void with_gpus(F&& body) {
  in_fresh_process([&] {
    const auto gpu = std::pair{DeviceKind::discrete_gpu, gib};
    add(Backend::cuda, {gpu, gpu, gpu});
    add(Backend::rocm, {gpu});
    add(Backend::oneapi, {});
    body();
  });
}
std::vector<Device> devices_of(const Scope& scope) { return scope.devices(); }
const auto where = [] { return this_task::device(); };

TEST(Scopes, SelectDevices) {
  with_gpus([] {
    EXPECT_EQ(devices_of(cpu()), std::vector{Device{}});
    EXPECT_EQ(devices_of(cuda(1)), std::vector{cuda1});
    EXPECT_EQ(devices_of(cuda({2, 0})), (std::vector{cuda0, cuda2}));
    EXPECT_EQ(devices_of(cuda({1})), std::vector{cuda1});
    EXPECT_EQ(devices_of(cuda(std::vector{0, 0, 1})), (std::vector{cuda0, cuda1}));
    EXPECT_EQ(devices_of(cuda(all)), (std::vector{cuda0, cuda1, cuda2}));
    EXPECT_EQ(devices_of(cuda(all) | rocm(all)), (std::vector{cuda0, cuda1, cuda2, rocm0}));
    EXPECT_EQ(devices_of(Scope(rocm0) | cuda(2) | cpu()), (std::vector{Device{}, cuda2, rocm0}));
    EXPECT_EQ(to_string(cuda({0, 2})), "cuda:0, cuda:2");
    EXPECT_EQ(Scope(), cpu());
    std::vector<Device> seen;
    for (const Device device : (cuda(all) | rocm(all)).devices()) seen.push_back(device);
    EXPECT_EQ(seen, (std::vector{cuda0, cuda1, cuda2, rocm0})) << "devices() of a temporary";
  });
}

TEST(Scopes, ComputeUnionsAndIntersections) {
  with_gpus([] {
    const Scope a = cuda({0, 1}), b = cuda({1, 2}), c = rocm(0) | cuda(1);
    EXPECT_EQ(a | b, cuda(all));
    EXPECT_EQ(a | b, b | a);
    EXPECT_EQ(a & b, cuda(1));
    EXPECT_EQ((a | c) & b, (a & b) | (c & b));
    EXPECT_EQ(a & a, a);
    EXPECT_TRUE(cuda(1).inside(a));
    EXPECT_FALSE(b.inside(a));
    EXPECT_TRUE(a.contains(cuda0));
    EXPECT_FALSE(a.contains(cuda2));
  });
}

TEST(Scopes, EmptyScopesThrowAndListExistingDevices) {
  with_gpus([] {
    const auto has = {std::string_view("cpu:0"), std::string_view("cuda:2"), std::string_view("rocm:0")};
    expect_throw<ArgumentError>([] { cuda(std::vector<int>{}); }, has);
    expect_throw<ArgumentError>([] { Scope(std::vector<Device>{}); }, has);
    expect_throw<DeviceError>([] { oneapi(all); }, {"oneapi(all)", "cuda:2"});
    expect_throw<DeviceError>([] { return cuda(all) & rocm(0); },
                              {"no device in common", "cuda:0, cuda:1, cuda:2", "rocm:0"});
  });
}

TEST(Scopes, MissingDevicesThrow) {
  with_gpus([] {
    expect_throw<DeviceError>([] { cuda(3); }, {"cuda:3 does not exist", "cuda:2"});
    expect_throw<DeviceError>([] { cuda({0, 7}); }, {"cuda:7 does not exist"});
    expect_throw<DeviceError>([] { cuda(-1); }, {"cuda:-1 does not exist"});
    expect_throw<DeviceError>([] { oneapi(0); }, {"oneapi:0 does not exist", "cpu:0"});
  });
}

TEST(Scopes, CanComputeReportsUsableBackends) {
  with_gpus([] {
    EXPECT_TRUE(can_compute(Backend::cpu));
    EXPECT_TRUE(can_compute(Backend::cuda));
    EXPECT_TRUE(can_compute(Backend::rocm));
    EXPECT_FALSE(can_compute(Backend::oneapi));
    EXPECT_FALSE(can_compute(Backend::dry_run));
  });
}

TEST(TaskScopes, RunsOnCpuByDefault) {
  with_gpus([] {
    EXPECT_EQ(current_scope(), cpu());
    EXPECT_EQ(spawn(where).fetch(), Device{});
    const DeviceScope gpu(cuda0);  // affects arrays only, not tasks
    EXPECT_EQ(spawn(where).fetch(), Device{});
    EXPECT_EQ(spawn([] { return current_device(); }).fetch(), Device{});
    EXPECT_EQ(spawn({.scope = cuda(2)}, where).fetch(), cuda2);
    EXPECT_EQ(spawn({.scope = cuda(2)}, [] { return current_device(); }).fetch(), cuda2);
  });
}

TEST(TaskScopes, OptionsAreInheritedByNestedTasks) {
  with_gpus([] {
    {
      const With outer = with({.scope = cuda(1), .priority = 2});
      EXPECT_EQ(current_scope(), cuda(1));
      EXPECT_EQ(spawn(where).fetch(), cuda1);
      {
        const With inner = with({.priority = 1});
        EXPECT_EQ(current_scope(), cuda(1));
      }
      const With inner = with({.scope = rocm(0)});
      EXPECT_EQ(spawn([] { return spawn([] { return spawn(where).fetch(); }).fetch(); }).fetch(), rocm0);
      // A task's own scope also applies to its nested tasks. A std::thread inherits no options.
      EXPECT_EQ(spawn({.scope = cuda(0)}, [] { return spawn(where).fetch(); }).fetch(), cuda0);
      Device elsewhere = cuda0;
      std::thread([&] { elsewhere = spawn(where).fetch(); }).join();
      EXPECT_EQ(elsewhere, Device{});
    }
    EXPECT_EQ(current_scope(), cpu());
    // A task uses the options that were in effect when it was created, even if it runs much later.
    Task<Device> late;
    Task<int> first;
    std::atomic<bool> go = false;
    {
      const With gone = with({.scope = cuda(2)});
      first = spawn({.scope = cpu()}, [&] {
        while (!go) std::this_thread::yield();
        return 1;
      });
      late = spawn([](int) { return spawn(where).fetch(); }, first);
    }
    go = true;
    EXPECT_EQ(late.fetch(), cuda2);
  });
}

TEST(TaskScopes, IntersectsScopesOfTaskArgumentsAndFunction) {
  with_gpus([] {
    const pinned<int> on_one(cuda1, 5);
    const per_device<int> on_two(cuda({1, 2}), [] { return current_device().index; });
    const auto first = [](int& value) { return std::pair(this_task::device(), value); };
    EXPECT_EQ(spawn(first, on_one).fetch(), std::pair(cuda1, 5)) << "without a scope, it runs on its argument's device";
    EXPECT_EQ(spawn({.scope = cuda(all)}, first, on_one).fetch(), std::pair(cuda1, 5));
    EXPECT_EQ(spawn({.scope = cuda(2)}, first, on_two).fetch(), std::pair(cuda2, 2));
    EXPECT_EQ(spawn({.scope = cuda({0, 1})}, first, on_two).fetch(), std::pair(cuda1, 1));
    EXPECT_EQ(spawn([](int& a, int& b) { return a + b; }, on_one, on_two).fetch(), 6);
    expect_throw<DeviceError>([&] { spawn({.scope = cuda(0)}, first, on_one); },
                              {"cuda:0", "argument 1", "pinned to = cuda:1", "no device in common"});
    expect_throw<DeviceError>(
        [&] {
          spawn([](int, int&) {}, 1, on_two, detail::Here::current());
          spawn(
              {.scope = cpu()}, [](int, int&) {}, 1, on_two);
        },
        {"cpu:0", "argument 2", "cuda:1, cuda:2"});
    expect_throw<DeviceError>([&] { on_two.at(cuda0); }, {"cuda:0", "cuda:1, cuda:2"});
    // Tests functions with variants.
    const auto either = [] {
      return for_device<cuda>([] { return std::string("cuda"); }) |
             for_device<rocm>([] { return std::string("rocm"); });
    };
    EXPECT_EQ(spawn({.scope = cuda(0)}, either()).fetch(), "cuda");
    EXPECT_EQ(spawn({.scope = cpu() | rocm(0)}, either()).fetch(), "rocm");
    expect_throw<DeviceError>([&] { spawn(either()); }, {"no variant", "cpu:0", "cuda, rocm"});
  });
}

TEST(TaskScopes, ImpossibleScopeDoesNotAffectOtherTasks) {
  with_gpus([] {
    const pinned<int> here(cuda1, 5);
    for (int i = 0; i < 10; ++i) {
      EXPECT_THROW(spawn(
                       {.scope = cuda(0)}, [](int&) {}, here),
                   DeviceError);
      EXPECT_EQ(spawn(
                    {.scope = cuda(all)}, [](int& v) { return v; }, here)
                    .fetch(),
                5);
    }
    synchronize();
  });
}

TEST(TaskScopes, UsesAllDevicesOfTheScope) {
  with_gpus([] {
    std::vector<Task<Device>> tasks;
    std::atomic<bool> go = false;
    for (int i = 0; i < 16; ++i)
      tasks.push_back(spawn({.scope = cuda(all) | rocm(all)}, [&] {
        while (!go) std::this_thread::yield();
        return this_task::device();
      }));
    go = true;
    std::map<Device, int> used;
    for (const auto& t : tasks) ++used[t.fetch()];
    EXPECT_EQ(used.size(), 4u);
    for (const auto& [device, count] : used) EXPECT_EQ(count, 4) << to_string(device);
  });
}

TEST(TaskScopes, PinnedValueIsSharedByAllTasks) {
  with_gpus([] {
    struct Counter {
      explicit Counter(int from) : made_on(current_device()), value(from) {}
      Counter(const Counter&) = delete;
      Device made_on;
      std::atomic<int> value;
    };
    const pinned<Counter> counter(cuda2, 100);
    EXPECT_EQ(counter.get().made_on, cuda2);
    std::vector<Task<void>> tasks;
    for (int i = 0; i < 50; ++i)
      tasks.push_back(spawn(
          [](Counter& c) {
            EXPECT_EQ(this_task::device(), cuda2);
            ++c.value;
          },
          counter));
    when_all(tasks).wait();
    EXPECT_EQ(counter.get().value, 150);
  });
}

TEST(TaskScopes, SynchronizeWaitsForGivenDevices) {
  with_gpus([] {
    std::atomic<int> there = 0;
    for (int i = 0; i < 20; ++i) spawn({.scope = cuda(i % 3)}, [&] { ++there; });
    synchronize(Backend::cuda);
    EXPECT_EQ(there, 20);
    std::atomic<bool> go = false;
    const Task<void> held = spawn({.scope = rocm(0)}, [&] {
      while (!go) std::this_thread::yield();
    });
    for (int i = 0; i < 20; ++i) spawn({.scope = cuda(1)}, [&] { ++there; });
    synchronize(cuda({0, 1}));
    EXPECT_EQ(there, 40);
    EXPECT_FALSE(held.ended());
    go = true;
    synchronize();
    EXPECT_TRUE(held.ended());
    synchronize(Backend::oneapi);
  });
}

}  // namespace
}  // namespace tessera

/// These tests fork while threads are running.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
