// SPDX-License-Identifier: Apache-2.0
// The context of a thread on every device: its current queue, and what other threads inherit.
#include "tessera/device/context.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>

#include "tessera/array/array.h"
#include "tessera/array/observer.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/placement/verify_on.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/queue/sequence.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

Device another(Device device) { return device.backend == Backend::interp ? Device{} : Device{Backend::interp, 0}; }
void elsewhere(const std::function<void()>& work) { std::async(std::launch::async, work).get(); }

TEST_P(OnEveryDevice, InnermostQueueScopeIsCurrent) {
  const Device device = GetParam(), other = another(device);
  Queue one(device), two(device);
  Queue &standard = Queue::of(device), &standard_there = Queue::of(other);
  EXPECT_EQ(&current_queue(device), &standard);
  {
    const QueueScope outer(one);
    EXPECT_EQ(&current_queue(device), &one);
    {
      Queue there(other);
      const QueueScope with_there(there);
      EXPECT_EQ(&current_queue(device), &one);
      EXPECT_EQ(&current_queue(other), &there);
      const QueueScope inner(two);
      EXPECT_EQ(&current_queue(device), &two);
      EXPECT_EQ(&current_queue(other), &there);
      EXPECT_EQ(current_device(), device);
    }
    EXPECT_EQ(&current_queue(device), &one);
    EXPECT_EQ(&current_queue(other), &standard_there);
    elsewhere([&] { EXPECT_EQ(&current_queue(device), &standard); });
  }
  EXPECT_EQ(&current_queue(device), &standard);
}

/// Checks that `work` uses only this queue. Uses of other queues throw in a recording.
void expect_on(Queue& queue, const std::function<void()>& work) {
  Queue recorded(queue.device());
  expect_throw<ArgumentError>(
      [&] {
        Sequence::record(recorded, [&] {
          const QueueScope with(queue);
          work();
        });
      },
      {"on a different queue"});
  EXPECT_GT(Sequence::record(queue, work).size(), 0u);
}

TEST_P(OnEveryDevice, ArraysComputeOnTheCurrentQueue) {
  Queue mine(GetParam());
  const Array x = Array::full({100}, 2).eval(), strided = Array::full({10, 10}, 3).eval().transpose();
  Array y = Array::zeros({100}).eval();
  expect_on(mine, [&] { y += x; });
  expect_on(mine, [&] { (x * y + 1).eval(); });
  expect_on(mine, [&] { sum(x).eval(); });
  expect_on(mine, [&] { y.fill(4); });
  expect_on(mine, [&] { y.assign(x); });
  expect_on(mine, [&] { strided.copy().eval(); });
  expect_on(mine, [&] { Array::full({3}, 1).eval(); });
  // The current queue is also used for uploads and downloads.
  const QueueScope with(mine);
  y = Array::from(Floats(100, 5)) * x;
  EXPECT_EQ(y.to_vector<float>(), Floats(100, 10));
  const Array there = y.to(another(GetParam())), back = there.to(GetParam());
  EXPECT_EQ(back.to_vector<float>(), Floats(100, 10));
}

TEST_P(OnEveryDevice, TaskInheritsDeviceQueueAndPlacement) {
  const Device device = GetParam(), other = another(device);
  Queue mine(device);
  Placement counted;
  InheritedContext context;
  {
    const Placement strict = Placement::strict({device});
    const QueueScope with(mine);
    context = InheritedContext::of_this_thread();
  }  // the inherited context is kept
  elsewhere([&] {
    {
      const InheritedContext::Scope scope(context);
      EXPECT_EQ(current_device(), device);
      EXPECT_EQ(&current_queue(device), &mine);
      expect_throw<DeviceError>([&] { Array::full({2}, 1, DType::f32, other).eval(); }, {"strict"});
      Array x = Array::full({64}, 1).eval();
      x += x;
      elsewhere([&] {  // a nested task
        const InheritedContext::Scope further(InheritedContext::of_this_thread());
        EXPECT_EQ(&current_queue(device), &Queue::of(device)) << "threads inherit nothing implicitly";
      });
      Queue inner_queue(device);
      const QueueScope inner(inner_queue);
      EXPECT_EQ(&current_queue(device), &inner_queue);
    }
    EXPECT_NE(&current_queue(device), &mine);
    Array::full({2}, 1, DType::f32, other).eval();
  });
  std::uint64_t launches = 0;
  for (const auto& k : counted.log().kernels) launches += k.launches;
  EXPECT_EQ(launches, 1u) << to_string(counted.log());
}

TEST_P(OnEveryDevice, PlacementCountsWorkOfAllThreadsThatInheritIt) {
  Placement counted;
  const auto context = InheritedContext::of_this_thread();
  std::vector<std::future<void>> threads;
  for (int t = 0; t < 3; ++t)
    threads.push_back(std::async(std::launch::async, [&] {
      const InheritedContext::Scope scope(context);
      Array x = Array::full({16}, 1).eval();
      for (int i = 0; i < 50; ++i) (x += x).eval();
    }));
  for (auto& t : threads) t.get();
  std::uint64_t launches = 0;
  for (const auto& k : counted.log().kernels) launches += k.launches;
  EXPECT_EQ(launches, 150u) << to_string(counted.log());
}

TEST_P(OnEveryDevice, RecordingsAndObserversAreNotInherited) {
  Array x = Array::full({8}, 1).eval(), y = Array::zeros({8}).eval();
  const auto look = [&] {
    EXPECT_EQ(Recorder::number(), 0u);
    y += x;
    EXPECT_EQ(y.to_vector<float>().size(), 8u);  // would throw in a recording
  };
  Sequence step = Sequence::record(Queue::of(GetParam()), [&] {
    x += x;
    const auto context = InheritedContext::of_this_thread();
    elsewhere([&] {
      const InheritedContext::Scope scope(context);
      look();
    });
    const std::uint64_t number = Recorder::number();
    {
      const InheritedContext::Scope here(context);  // like a thread that runs a task while it waits
      look();
    }
    EXPECT_EQ(Recorder::number(), number);
  });
  EXPECT_EQ(step.size(), 1u);
  const VerifyReport report = verify_on(another(GetParam()), [&] {
    x += x;
    const auto context = InheritedContext::of_this_thread();
    const InheritedContext::Scope here(context);
    look();
    EXPECT_EQ(thread_context.launch_interceptor, nullptr);
  });
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0].launches, 1u);
  struct : ArrayObserver {
    void made(const ArrayOperation&) override { ++told; }
    int told = 0;
  } observer;
  {
    const ObserverScope observing(&observer);
    const Array before = x + x;
    {
      const InheritedContext::Scope here(InheritedContext::of_this_thread());
      look();
    }
    const Array after = x + x;
  }
  EXPECT_EQ(observer.told, 2);
}

TEST_P(OnEveryDevice, ThrowsIfAnInheritedQueueWasDestroyed) {
  InheritedContext context;
  {
    Queue mine(GetParam());
    const QueueScope with(mine);
    context = InheritedContext::of_this_thread();
  }
  expect_throw<ArgumentError>([&] { const InheritedContext::Scope scope(context); },
                              {to_string(GetParam()), "has been destroyed", "Keep the queue"});
  EXPECT_EQ(&current_queue(GetParam()), &Queue::of(GetParam()));
}

}  // namespace
}  // namespace tessera
