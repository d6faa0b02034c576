// SPDX-License-Identifier: Apache-2.0
// Tasks that are queued on a device before earlier tasks have ended, and copies that run concurrently with kernels.
// Each test runs on fake GPUs in its own process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <stop_token>
#include <thread>

#include "tessera/array/functions.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/kernel/kernel.h"
#include "tessera/task/dispatch_limit.h"
#include "tessera/task/error.h"
#include "tessera/task/region.h"
#include "tessera/task/synchronize.h"
#include "tessera/task/this_task.h"
#include "tests/support/errors.h"
#include "tests/support/fake_gpus.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using test::expect_throw;
using Floats = std::vector<float>;

const Device gpu{Backend::cuda, 0};
template <class F>
auto fake(const char* name) {
  return os::Library::open(TESSERA_FAKES "/libfake_cuda.so").function<F>(name);
}
std::uint64_t count(const char* what) { return fake<std::uint64_t(const char*)>("tessera_fake_count")(what); }
void with_gpu(const char* kernel_us, const std::function<void()>& body, test::Variables more = {}) {
  more.insert(more.end(), {{"TESSERA_FAKE_KERNEL_US", kernel_us}, {"TESSERA_FAKE_DELAY_US", "0"}});
  test::in_process(test::four_gpus(more), body);
}
Array at_home(float value, std::int64_t n = 1000) {
  return Array::full({n}, value, DType::f32, Device{}).copy().eval();
}
/// Compiles kernels, creates queues, and lets the library measure the duration of the task.
template <class F>
void warm(F&& work) {
  for (int i = 0; i < 12; ++i) work();  // the expected duration is the median of the last nine tasks
  synchronize(cuda(0));
}

TEST(DispatchLimit, InputsAreFetchedDuringPreviousTask) {
  with_gpu("40000", [] {
    constexpr int tasks = 6;
    Array sums = Array::zeros({1000}, DType::f32, gpu).copy().eval();
    std::vector<Array> inputs;
    for (int i = 0; i < tasks; ++i) inputs.push_back(at_home(static_cast<float>(i)));
    const auto add = [](const Array& v, Array& to) { to += v; };
    const Array one = at_home(1);
    warm([&] { spawn({.scope = cuda(0)}, add, in(one), inout(sums)).wait(); });
    const std::uint64_t before = count("copies during kernels");
    const TaskCopies copies = task_copies();
    Region r({.scope = cuda(0)});
    for (const Array& v : inputs) r.spawn(add, in(v), inout(sums));
    r.wait();
    EXPECT_GE(count("copies during kernels") - before, tasks / 2u) << "all but the first, if the host is fast enough";
    EXPECT_EQ(task_copies().fetched - copies.fetched, static_cast<std::uint64_t>(tasks)) << "no input is copied twice";
    EXPECT_EQ(sums.to_vector<float>(), Floats(1000, 12 + 0 + 1 + 2 + 3 + 4 + 5));
  });
}

TEST(DispatchLimit, ChainedTasksAreQueuedAheadUpToTheLimit) {
  with_gpu("1000", [] {
    constexpr int tasks = 24;
    Array x = at_home(0);
    const auto step = [](Array& v) { v += 1; };
    warm([&] { spawn({.scope = cuda(0)}, step, inout(x)).wait(); });
    std::vector<Task<void>> chain;
    std::vector<int> ahead;  // number of unfinished earlier tasks when each task was queued
    std::atomic<bool> made = false;
    Region r({.scope = cuda(0)});
    const Task<void> first = r.spawn({.scope = cpu()}, [&] {  // blocks until all tasks are created
      while (!made) std::this_thread::yield();
    });
    for (int i = 0; i < tasks; ++i) {
      chain.push_back(r.spawn(
          {},
          [&](Array& v) {
            int open = 0;
            for (std::size_t k = 0; k < ahead.size(); ++k) open += !chain[k].ended();
            ahead.push_back(open);
            v += 1;
          },
          inout(x), first));
    }
    made = true;
    r.wait();
    EXPECT_EQ(x.to_vector<float>(), Floats(1000, tasks + 12));
    ASSERT_EQ(ahead.size(), static_cast<std::size_t>(tasks));
    EXPECT_GE(std::ranges::count_if(ahead, [](int n) { return n > 0; }), tasks / 2);
    EXPECT_LE(*std::ranges::max_element(ahead), 3) << "at most four at a time";
  });
}

TEST(DispatchLimit, IndependentTasksAreQueuedGraduallySoThatTheirDataFits) {
  with_gpu("500", [] {
    constexpr std::int64_t mebi = 1 << 20;
    constexpr int tasks = 40;
    std::vector<Array> all;
    for (int i = 0; i < tasks; ++i) all.push_back(at_home(static_cast<float>(i), mebi / 4));
    warm([&] {
      spawn(
          {.scope = cuda(0)}, [](Array& v) { v += 0; }, inout(all[0]))
          .wait();
    });
    set_memory_limit(gpu, memory_stats(gpu).live_bytes + 8 * mebi);
    {
      Region r({.scope = cuda(0)});
      for (Array& a : all) r.spawn([](Array& v) { v += 1; }, inout(a));
      r.wait();
    }
    set_memory_limit(gpu, 0);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].to_vector<float>().at(77), static_cast<float>(i) + 1);
  });
}

TEST(DispatchLimit, HigherPriorityIsQueuedFirst) {
  with_gpu("2000", [] {
    std::vector<Array> all;
    for (int i = 0; i < 12; ++i) all.push_back(at_home(0));
    const auto step = [](Array& v) { v += 1; };
    warm([&] { spawn({.scope = cuda(0)}, step, inout(all[0])).wait(); });
    std::mutex lock;
    std::vector<int> order;
    const auto put_in = [&](int i) {
      const std::lock_guard hold(lock);
      order.push_back(i);
    };
    Region r({.scope = cuda(0)});
    for (int i = 0; i < 12; ++i)
      r.spawn(
          {.priority = i < 6 ? -1 : 1}, [&, i](Array& v) { put_in(i), v += 1; }, inout(all[i]));
    r.wait();
    ASSERT_EQ(order.size(), 12u);
    // Tasks that are already queued are not reordered. Of the other tasks, the last six run first.
    EXPECT_LT(std::ranges::find(order, 11) - order.begin(), std::ranges::find(order, 5) - order.begin());
  });
}

TEST(DispatchLimit, SkippedAndCancelledTasksNeedNoSlot) {
  with_gpu("50", [] {
    const auto step = [](Array& v) { v += 1; };
    std::vector<Array> all;
    for (int i = 0; i < 8; ++i) all.push_back(at_home(0));
    Array skipped_data = at_home(0), cancelled_data = at_home(0);
    warm([&] { spawn({.scope = cuda(0)}, step, inout(all[0])).wait(); });
    const auto hold = fake<void(int)>("tessera_fake_hold");
    std::atomic<int> put_in = 0;
    std::stop_source stop;
    stop.request_stop();
    Region r({.scope = cuda(0)});
    hold(1);
    for (Array& a : all) r.spawn([&](Array& v) { v += 1, ++put_in; }, inout(a));
    const auto until = std::chrono::steady_clock::now() + 20s;
    const auto wait_until = [&](auto&& is) {
      while (!is() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
      return is();
    };
    EXPECT_TRUE(wait_until([&] { return put_in >= 2; }));
    std::this_thread::sleep_for(50ms);  // all slots are occupied
    EXPECT_LT(put_in, 8);
    const Task<void> breaks = r.spawn({.scope = cpu()}, [] { throw std::runtime_error("on purpose"); });
    const Task<void> skipped = r.spawn({}, step, inout(skipped_data), breaks);
    const Task<void> cancelled = r.spawn({.stop = stop.get_token()}, step, inout(cancelled_data));
    EXPECT_TRUE(wait_until([&] { return skipped.ended() && cancelled.ended(); })) << "while the device is blocked";
    hold(0);
    EXPECT_THROW(skipped.fetch(), TaskError);
    EXPECT_THROW(cancelled.fetch(), TaskCancelled);
    EXPECT_THROW(r.wait(), TaskError);
    for (std::size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all[i].to_vector<float>(), Floats(1000, 1));
  });
}

// A waiting task releases its slot, so that the nested tasks for which it waits can run.
TEST(DispatchLimit, WaitingTasksReleaseTheirSlot) {
  with_gpu("200", [] {
    Array x = at_home(0), y = at_home(0);
    std::vector<Array> all;
    for (int i = 0; i < 12; ++i) all.push_back(at_home(0));
    Region r({.scope = cuda(0)});
    for (Array& a : all)
      r.spawn(
          [](Array& v) {
            v += 1;
            Region inner;
            for (int k = 0; k < 8; ++k) inner.spawn([](Array& w) { w += 1; }, inout(v));
            inner.wait();
            EXPECT_EQ(spawn([] { return sum(Array::ones({10})).item<float>(); }).fetch(), 10);
            v += 1;
          },
          inout(a));
    r.wait();
    for (const Array& a : all) EXPECT_EQ(a.to_vector<float>(), Floats(1000, 10));
  });
}

TEST(DispatchLimit, FaultFailsOnlyDependentTasksAndReportsTheirNames) {
  const auto warm_up = [] {
    Array x = Array::zeros({1000}, DType::f32, gpu).copy().eval();
    warm([&] {
      spawn(
          {.scope = cuda(0)}, [](Array& v) { v += 1; }, inout(x))
          .wait();
    });
    return x;
  };
  // The fault is injected into the next operation, which is the first kernel of the chain.
  const std::string before =
      test::run_in_child(test::four_gpus({{"TESSERA_FAKE_KERNEL_US", "50"}, {"TESSERA_FAKE_DELAY_US", "0"}}), [&] {
        const Array x = warm_up();
        return std::to_string(count("operations"));
      });
  with_gpu("50",
           [&] {
             Array x = warm_up(), cpu = at_home(0), other = at_home(0);
             const auto step = [](Array& v) { v += 1; };
             const auto hold = fake<void(int)>("tessera_fake_hold");
             hold(1);
             Region r({.scope = cuda(0)});
             std::atomic<int> put_in = 0;
             std::vector<Task<void>> chain;
             for (int i = 0; i < 3; ++i)
               chain.push_back(r.spawn(
                   {.name = "step " + std::to_string(i)}, [&](Array& v) { v += 1, ++put_in; }, inout(x)));
             const Task<void> behind = r.spawn(
                 {.scope = tessera::cpu(), .name = "read"}, [](const Array&) {}, in(x));
             const Task<void> apart = r.spawn({.scope = tessera::cpu()}, step, inout(cpu));
             const Task<void> elsewhere = r.spawn({.scope = cuda(1)}, step, inout(other));
             const auto until = std::chrono::steady_clock::now() + 20s;
             // Tasks that took long when they were measured, because cores were occupied, have two slots.
             while (put_in < 2 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
             EXPECT_GE(put_in, 2) << "before the first could begin on the device";
             EXPECT_FALSE(chain[0].ended());
             hold(0);
             expect_throw<TaskError>([&] { chain[0].fetch(); }, {"step 0", "cuda:0"});
             expect_throw<TaskError>([&] { chain[2].fetch(); }, {"step 0", "step 1", "step 2"});
             expect_throw<TaskError>([&] { behind.fetch(); }, {"step 0", "read"});
             EXPECT_NO_THROW(apart.fetch());
             EXPECT_NO_THROW(elsewhere.fetch());
             EXPECT_THROW(r.wait(), TaskError);
             EXPECT_EQ(cpu.to_vector<float>(), Floats(1000, 1));
             EXPECT_EQ(other.to_vector<float>(), Floats(1000, 1));
             expect_throw<DeviceError>([&] { x.to_vector<float>(); }, {"cuda:0"});
           },
           {{"TESSERA_FAKE_FAULT", "late=" + std::to_string(std::stoull(before) + 1) + "@0"}});
}

// The thread that ends the device's tasks is delayed, so that a task queued behind the failed one observes the fault
// first.
TEST(DispatchLimit, FaultIsAttributedToItsTaskEvenIfASuccessorObservesItFirst) {
  const auto body = [](bool faulty) -> std::uint64_t {
    Array other = at_home(0).to(gpu).eval(), x = at_home(0).to(gpu).eval();
    synchronize(cuda(0));
    const auto hold = fake<void(int)>("tessera_fake_hold");
    const auto until = std::chrono::steady_clock::now() + 20s;
    const auto wait_for = [until](const std::atomic<bool>& flag) {
      while (!flag && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(100us);
    };
    std::atomic<bool> held_up = false, seen = false;
    std::atomic<std::uint64_t> before = 0;
    Region r({.scope = cuda(0)});
    {
      // Destroyed on the thread that ends the task, when the task has ended.
      const std::shared_ptr<void> goes(nullptr, [&, wait_for](void*) {
        held_up = true;
        wait_for(seen);
      });
      r.spawn([goes](Array& v) { (v += 1).eval(); }, inout(other));
    }
    const Task<void> fails = r.spawn(
        {.name = "fails"},
        [&](Array& v) {
          wait_for(held_up);
          hold(1);
          before = count("operations");
          (v += 1).eval();
        },
        inout(x));
    const Task<void> behind = r.spawn(
        {.name = "behind"},
        [&](Array& v) {
          hold(0);
          try {
            v.to_vector<float>();
          } catch (...) {
            seen = true;
            throw;
          }
          seen = true;
        },
        inout(x));
    const Task<void> reads = r.spawn(
        {.scope = cpu(), .name = "reads"}, [](const Array&) {}, in(x));
    if (faulty) {
      expect_throw<TaskError>([&] { reads.fetch(); }, {"fails", "reads"});
      expect_throw<TaskError>([&] { fails.fetch(); }, {"fails", "cuda:0", "701"});
      expect_throw<TaskError>([&] { behind.fetch(); }, {"fails", "behind"});
      EXPECT_THROW(r.wait(), TaskError);
    } else {
      r.wait();
    }
    EXPECT_LT(std::chrono::steady_clock::now(), until) << "no thread waited long";
    return before;
  };
  const test::Variables machine = {{"TESSERA_FAKE_KERNEL_US", "20000"}, {"TESSERA_FAKE_DELAY_US", "0"}};
  const std::string before = test::run_in_child(test::four_gpus(machine), [&] { return std::to_string(body(false)); });
  // Injects an error that does not make the device unusable.
  with_gpu("20000", [&] { body(true); },
           {{"TESSERA_FAKE_FAULT", "late=" + std::to_string(std::stoull(before) + 1) + ":701@0"}});
}

TEST(DispatchLimit, KernelsAreCompiledWhileDependenciesRun) {
  with_gpu("0", [] {
    const auto twice = kernel("made_ahead", [](Buffer<float> x) { x[global_id()] *= 2; });
    Array x = Array::ones({100}, DType::f32, gpu).copy().eval();
    const Device other{Backend::cuda, 1};
    const auto hold = fake<void(int)>("tessera_fake_hold");
    const auto made = [] {
      for (const auto& m : placement_log().made)
        if (m.device == gpu) return m.compiled + m.loaded;
      return std::uint64_t{0};
    };
    Array y = Array::ones({100}, DType::f32, other).copy().eval();
    const auto step = [](Array& v) { v += 1; };
    spawn({.scope = Scope(other)}, step, inout(y)).wait();
    Region r({.scope = cuda(0)});
    const std::uint64_t before = made();
    hold(1);
    const Task<void> first = r.spawn({.scope = Scope(other)}, step, inout(y));  // occupies the device, which is blocked
    for (int i = 0; i < 3; ++i) r.spawn({}, twice, Extent{100}, x, first);
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (made() == before && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(made() - before, 1u) << "compiled once, while the tasks wait";
    EXPECT_FALSE(first.ended());
    hold(0);
    r.wait();
    EXPECT_EQ(made() - before, 1u);
    EXPECT_EQ(x.to_vector<float>(), Floats(100, 8));
  });
}

}  // namespace
}  // namespace tessera
