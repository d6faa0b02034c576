// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <latch>
#include <random>
#include <string_view>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/ir/value.h"
#include "tests/support/device_fixture.h"
#include "tests/support/run_with_timeout.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::text_of;

class QueueTest : public test::DeviceTest {
 protected:
  static constexpr std::size_t n = 4096;
  static std::shared_ptr<Storage> storage(Device d, std::size_t elements = n) {
    return Storage::allocate(d, elements * 4);
  }
  static BufferView view(const std::shared_ptr<Storage>& s) { return {s, 0, s->bytes() / 4, DType::u32}; }
  static std::vector<std::uint32_t> random_data(std::size_t elements = n) {
    static std::mt19937 random(static_cast<unsigned>(test_seed()));
    std::vector<std::uint32_t> data(elements);
    for (auto& x : data) x = random();
    return data;
  }
  static std::vector<std::uint32_t> read(Queue& q, const std::shared_ptr<Storage>& s) {
    std::vector<std::uint32_t> data(s->bytes() / 4, 0xDEADBEEF);
    q.download(data.data(), view(s));
    return data;
  }
  /// y[i] = x[i] + 1. The body is implemented in the test driver.
  static const Kernel& increment() {
    static const Kernel kernel = [] {
      test::set_body("increment", [](const test::Launch& l) {
        for (std::uint64_t i = 0; i < l.shape[0]; ++i)
          l.arguments[1].as<std::uint32_t>()[i] = l.arguments[0].as<std::uint32_t>()[i] + 1;
      });
      ir::Builder b("increment", ir::KernelKind::map);
      ir::Builder::Scope scope(b);
      const auto x = ir::buffer_param("x", DType::u32, ir::Access::read);
      const auto y = ir::buffer_param("y", DType::u32, ir::Access::read_write);
      const auto i = ir::global_id();
      y.store(i, x.load(i) + 1);
      return Kernel(b.finish());
    }();
    return kernel;
  }
};

TEST_F(QueueTest, UploadsCopiesFillsAndDownloads) {
  for (bool host_visible : {false, true}) {
    const Device d = fresh();
    behaviour(d)->host_visible = host_visible;
    behaviour(d)->max_delay_us = 200;
    Queue& q = Queue::of(d);
    const auto a = storage(d), b = storage(d);
    auto data = random_data();
    const auto expected = data;
    q.upload(view(a), data.data());
    std::fill(data.begin(), data.end(), 0);  // the source may be reused on return
    q.copy(view(b), view(a));
    EXPECT_EQ(read(q, b), expected);
    q.fill(view(a), 0x01020304);
    q.fill({b, 8, 3, DType::u16}, 0xABCD);
    q.fill({b, 16, 2, DType::f64}, 0x1122334455667788);
    q.fill({b, 15, 1, DType::i8}, 0xFF);
    auto after = expected;
    after[2] = 0xABCDABCD;
    auto* bytes = reinterpret_cast<std::uint8_t*>(after.data());
    bytes[12] = 0xCD, bytes[13] = 0xAB, bytes[15] = 0xFF;
    for (int i : {4, 6})
      after[static_cast<std::size_t>(i)] = 0x55667788, after[static_cast<std::size_t>(i) + 1] = 0x11223344;
    EXPECT_EQ(read(q, b), after);
    EXPECT_EQ(read(q, a), std::vector<std::uint32_t>(n, 0x01020304));
    // Use parts of storages.
    std::uint32_t few[3] = {1, 2, 3}, got[3] = {};
    q.upload({a, 40, 3, DType::u32}, few);
    q.copy({a, 400, 3, DType::u32}, {a, 40, 3, DType::u32});
    q.download(got, {a, 400, 3, DType::u32});
    EXPECT_EQ(got[2], 3u);
  }
}

TEST_F(QueueTest, RejectsViewsOutsideTheirStorage) {
  const Device d = fresh();
  Queue& q = Queue::of(d);
  const auto a = storage(d, 4), b = storage(d, 4);
  std::uint32_t host[8] = {};
  const std::uint64_t huge = ~std::uint64_t{0};
  for (const BufferView& bad :
       {BufferView{a, 0, 5, DType::u32}, BufferView{a, 4, 4, DType::u32}, BufferView{a, 17, 0, DType::u8},
        BufferView{a, huge, 2, DType::u32}, BufferView{a, 0, huge / 4 + 2, DType::u32}, BufferView{}}) {
    text_of<ArgumentError>([&] { q.upload(bad, host); });
    text_of<ArgumentError>([&] { q.download(host, bad); });
    text_of<ArgumentError>([&] { q.fill(bad, 0); });
    text_of<ArgumentError>([&] { q.copy(bad, view(b)); });
    text_of<ArgumentError>([&] { q.copy(view(b), bad); });
  }
  expect_contains(text_of<ArgumentError>([&] {
                    q.fill({a, 8, 3, DType::u32}, 0);
                  }),
                  {"[fill]", "extends beyond its storage", "3 elements of u32 from byte 8 of a storage of 16 bytes"});
  q.fill({a, 8, 2, DType::u32}, 0);
  q.fill({a, 16, 0, DType::u32}, 0);
  expect_contains(text_of<ArgumentError>([&] { q.copy(view(a), {b, 0, 3, DType::u32}); }), {"the sizes differ"});
  expect_contains(text_of<ArgumentError>([&] { q.copy({a, 0, 3, DType::u32}, {a, 4, 3, DType::u32}); }), {"overlap"});
  q.copy({a, 0, 2, DType::u32}, {a, 8, 2, DType::u32});
  q.copy(view(a), view(a));
  text_of<ArgumentError>([&] { q.upload(view(a), nullptr); });
  const Device e = fresh();
  expect_contains(text_of<DeviceError>([&] { Queue::of(e).upload(view(a), host); }),
                  {to_string(d), to_string(e), "not on the queue's device"});
  expect_contains(text_of<DeviceError>([&] { Queue::of(e).copy(view(a), view(b)); }), {"neither"});
}

TEST_F(QueueTest, OrdersUsesOfAStorageOnSeveralQueues) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 400;
  Queue one(d), two(d);
  Queue* queues[] = {&one, &two, &Queue::of(d)};
  std::mt19937 random(static_cast<unsigned>(test_seed()));
  std::vector<std::shared_ptr<Storage>> s;
  std::vector<std::vector<std::uint32_t>> model;  // expected contents of each storage
  for (int i = 0; i < 4; ++i) {
    s.push_back(storage(d, 64));
    model.push_back(random_data(64));
    one.upload(view(s.back()), model.back().data());
  }
  for (int step = 0; step < 400; ++step) {
    Queue& q = *queues[random() % 3];
    const auto a = random() % 4, b = random() % 4;
    switch (random() % 4) {
      case 0:
        model[a] = random_data(64);
        q.upload(view(s[a]), model[a].data());
        break;
      case 1:
        q.copy(view(s[a]), view(s[b]));
        model[a] = model[b];
        break;
      case 2: {
        increment().launch({64, 1, 1}, std::vector<LaunchArgument>{view(s[b]), view(s[a])}, &q);
        auto source = model[b];
        for (auto& x : source) ++x;
        model[a] = source;
        break;
      }
      default: ASSERT_EQ(read(q, s[a]), model[a]) << "step " << step;
    }
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read(two, s[static_cast<std::size_t>(i)]), model[static_cast<std::size_t>(i)]);
}

TEST_F(QueueTest, ReadsAndWritesOnDifferentQueuesWaitForEachOther) {
  // Deterministic, because the writer is paused until the reader is queued.
  const Device d = fresh();
  Queue writer(d), reader(d);
  const auto x = storage(d), y = storage(d), z = storage(d);
  writer.fill(view(x), 1);
  writer.finish();
  behaviour(d)->hold();
  writer.fill(view(x), 2);
  reader.copy(view(y), view(x));  // must wait for the write
  writer.fill(view(x), 3);        // must wait for the read
  reader.copy(view(z), view(x));
  EXPECT_GT(behaviour(d)->records, 0);
  behaviour(d)->resume();
  EXPECT_EQ(read(reader, y), std::vector<std::uint32_t>(n, 2));
  EXPECT_EQ(read(writer, z), std::vector<std::uint32_t>(n, 3));
}

TEST_F(QueueTest, SingleQueueRecordsNoEvents) {
  const Device d = fresh();
  const auto x = storage(d), y = storage(d);
  Queue& q = Queue::of(d);
  const int before = behaviour(d)->records;
  for (int i = 0; i < 100; ++i) q.copy(view(i % 2 ? x : y), view(i % 2 ? y : x));
  EXPECT_EQ(behaviour(d)->records, before);
  q.finish();
}

TEST_F(QueueTest, WorkIsAsynchronousAndHostReadsBlock) {
  const Device d = fresh();
  const auto x = storage(d), y = storage(d);
  Queue& q = Queue::of(d);
  behaviour(d)->hold();
  q.fill(view(x), 5);
  increment().launch({n, 1, 1}, {view(x), view(y)});  // if either call waited, the test would hang here
  std::atomic<bool> got = false;
  std::thread reader([&] {
    EXPECT_EQ(read(q, y), std::vector<std::uint32_t>(n, 6));
    got = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(got);
  // While one thread waits for the queue, another thread submits work.
  q.fill(view(x), 7);
  behaviour(d)->resume();
  reader.join();
  EXPECT_EQ(read(q, x), std::vector<std::uint32_t>(n, 7));
}

TEST_F(QueueTest, DestructorFinishesWork) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 500;
  const auto x = storage(d), y = storage(d);
  for (std::uint32_t i = 0; i < 20; ++i) {
    {
      Queue q(d);
      q.fill(view(x), i);
    }
    Queue::of(d).copy(view(y), view(x));
    ASSERT_EQ(read(Queue::of(d), y)[17], i);
  }
}

TEST_F(QueueTest, CopiesBetweenDevicesGoThroughTheHost) {
  for (bool visible : {false, true}) {
    const Device a = fresh(), b = fresh(Backend::cpu);
    behaviour(b)->host_visible = visible;
    behaviour(a)->max_delay_us = behaviour(b)->max_delay_us = 200;
    constexpr std::size_t large = 5 * 1024 * 1024 + 3;  // larger than one staging buffer
    const auto x = storage(a, large), y = storage(b, large), z = storage(a, large);
    const auto data = random_data(large);
    Queue::of(a).upload(view(x), data.data());
    reset_placement_log();
    Queue::of(a).copy(view(y), view(x));  // a queue of either device can be used
    Queue::of(a).copy(view(z), view(y));
    EXPECT_EQ(read(Queue::of(a), z), data);
    EXPECT_EQ(read(Queue::of(b), y), data);
    for (const auto& row : placement_log().copies) {
      if (row.device == b) {
        EXPECT_EQ(row.to_device_bytes, large * 4);
        EXPECT_EQ(row.to_host_bytes, 2 * large * 4);
      }
      if (row.device == a) {
        EXPECT_EQ(row.to_device_bytes, large * 4);
        EXPECT_EQ(row.to_host_bytes, 2 * large * 4);
      }
    }
  }
}

TEST_F(QueueTest, ThreadsCanReadOneStorageConcurrently) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 50;
  const auto x = storage(d, 256);
  const auto data = random_data(256);
  Queue::of(d).upload(view(x), data.data());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Queue mine(d);
      Queue& q = t % 2 ? mine : Queue::of(d);
      for (int i = 0; i < 100; ++i) {
        const auto y = storage(d, 256);
        if (i % 2)
          q.copy(view(y), view(x));
        else
          increment().launch({256, 1, 1}, std::vector<LaunchArgument>{view(x), view(y)}, &q);
        const auto got = read(q, y);
        for (std::size_t k = 0; k < 256; ++k) ASSERT_EQ(got[k], data[k] + (i % 2 ? 0 : 1));
      }
    });
  for (auto& t : threads) t.join();
}

TEST_F(QueueTest, ErrorsOfAsynchronousWorkListLatestLaunches) {
  const Device d = fresh();
  const auto x = storage(d), y = storage(d);
  Queue& q = Queue::of(d);
  q.fill(view(x), 1);
  q.finish();
  behaviour(d)->fail_work = true;
  increment().launch({n, 1, 1}, {view(x), view(y)});
  q.copy(view(x), view(y));
  expect_contains(text_of<KernelError>([&] { q.finish(); }),
                  {"the work failed on purpose", "Latest work in this queue, newest first: (copy), increment, (fill)"});
  behaviour(d)->fail_work = false;
  // The error is reported only once. The error of a kernel does not lose the device.
  q.finish();
  q.fill(view(x), 3);
  EXPECT_EQ(read(q, x)[0], 3u);
  EXPECT_NE(device_info(d).state, DeviceState::lost);
}

TEST_F(QueueTest, ErrorFoundByInternalWaitIsReportedByNextWait) {
  const auto expect_told_once = [](const std::function<void()>& wait) {
    expect_contains(text_of<KernelError>([&] { wait(); }), {"the work failed on purpose", "newest first: increment"});
    wait();
  };
  for (const char* who : {"trim", "wrapped memory", "kernel", "queue", "no error report"}) {
    SCOPED_TRACE(who);
    const std::string_view by = who;
    const Device d = by == "wrapped memory" ? Device{Backend::cpu, 0} : fresh();
    behaviour(d)->host_visible = true;
    behaviour(d)->failed_work = 0;
    Queue& q = Queue::of(d);
    auto own = by == "queue" ? std::make_unique<Queue>(d) : nullptr;
    const auto x = storage(d), other = storage(d);
    std::vector<std::uint32_t> memory(n);
    auto y = by == "wrapped memory" ? Storage::wrap_host(memory.data(), n * 4, nullptr) : storage(d);
    q.fill(view(x), 1);
    q.finish();
    behaviour(d)->fail_work = true;
    {
      const Kernel kernel(increment().function());  // its compiled code is destroyed with it
      kernel.launch({n, 1, 1}, std::vector<LaunchArgument>{view(x), view(y)}, own ? own.get() : &q);
    }
    if (by == "kernel") {  // retiring another kernel checks whether this one can be destroyed
      while (behaviour(d)->failed_work == 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      Kernel(increment().function()).prepare(d);
    }
    if (by == "no error report") {
      while (behaviour(d)->failed_work == 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      Queue theirs(d);
      y->try_before_write(theirs);
    }
    if (by == "trim" || by == "wrapped memory") y.reset();
    if (by == "trim") trim(d);
    own.reset();
    if (by == "trim" || by == "wrapped memory") {
      EXPECT_EQ(behaviour(d)->failed_work, 1) << "the work was waited for";
    }
    while (behaviour(d)->failed_work == 0) std::this_thread::yield();
    behaviour(d)->fail_work = false;
    if (y)  // the driver is not called for host memory
      expect_told_once([&] { read(q, y); });
    else
      expect_told_once([&] { q.finish(); });
    q.fill(view(other), 3);
    EXPECT_EQ(read(q, other)[0], 3u);
    EXPECT_NE(device_info(d).state, DeviceState::lost);
    behaviour(d)->host_visible = false;
  }
}

TEST_F(QueueTest, PartlySubmittedWorkIsOrderedWithOtherWork) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 400;
  Queue& q = Queue::of(d);
  Queue other(d);
  const auto x = storage(d);
  q.fill(view(x), 1);
  for (int i = 0; i < 30; ++i) {
    {
      const auto y = storage(d);
      behaviour(d)->fail_after_launch = true;
      expect_contains(text_of<KernelError>([&] {
                        increment().launch({n, 1, 1}, {view(x), view(y)});
                      }),
                      {"failed halfway", "increment"});
      behaviour(d)->fail_after_launch = false;
    }
    const auto again = storage(d);  // reuses the same memory
    other.fill(view(again), 7);
    ASSERT_EQ(read(other, again), std::vector<std::uint32_t>(n, 7)) << "the launch wrote later";
  }
}

TEST_F(QueueTest, KeepsMemoryInUseIfEventsCannotBeRecorded) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 400;
  Queue& q = Queue::of(d);
  for (int i = 0; i < 10; ++i) {
    auto x = storage(d), y = storage(d);
    q.fill(view(x), 1);
    {
      const Kernel kernel(increment().function());
      kernel.launch({n, 1, 1}, {view(x), view(y)});
      behaviour(d)->fail_record = true;
    }
    x.reset(), y.reset();
    // The driver reports an error if work still uses the memory, or if the kernel was destroyed.
    EXPECT_EQ(trim(d), 2 * n * 4);
    behaviour(d)->fail_record = false;
  }
}

TEST_F(QueueTest, CallbackMayDestroyObjectsButNotUseQueue) {
  const Device d = fresh();
  Queue& q = Queue::of(d);
  const auto x = storage(d);
  auto y = storage(d);
  auto kernel = std::make_unique<Kernel>(increment().function());
  q.fill(view(x), 1);
  kernel->launch({n, 1, 1}, {view(x), view(y)});
  q.submit_native("drops", {}, {}, [&](void*) {
    kernel.reset();
    y.reset();
  });
  const std::string refused =
      text_of<ArgumentError>([&] { q.submit_native("fills", {}, {}, [&](void*) { q.fill(view(x), 2); }); });
  expect_contains(refused, {"submit_native", "uses the queue that it submits work to", "the vendor's API"});
  Queue other(d);
  expect_contains(text_of<ArgumentError>([&] {
                    q.submit_native("outer", {}, {}, [&](void*) {
                      other.submit_native("inner", {}, {}, [&](void*) { q.fill(view(x), 2); });
                    });
                  }),
                  {"uses the queue that it submits work to"});
  EXPECT_EQ(read(q, x), std::vector<std::uint32_t>(n, 1));
}

TEST_F(QueueTest, WaitIncludesWorkSubmittedByCallbacks) {
  const Device d = fresh();
  Queue& q = Queue::of(d);
  for (const bool events : {false, true}) {  // if there is a second queue, each operation has an event
    const auto other = events ? std::make_unique<Queue>(d) : nullptr;
    const auto y = storage(d);
    auto old = storage(d);
    q.fill(view(old), 1);
    old.reset();
    std::atomic<bool> done = false;
    const std::array writes = {view(y)};
    q.submit_native("late", {}, writes, [&](void* native) {
      EXPECT_EQ(trim(d), n * 4);  // waits for the fill
      test::put_native(native, [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        done = true;
      });
    });
    y->wait_readable();
    EXPECT_TRUE(done);
    while (!done) std::this_thread::yield();
  }
}

TEST_F(QueueTest, CallbackExceptionPropagatesUnchanged) {
  const Device d = fresh(), e = fresh();
  Queue& q = Queue::of(d);
  const auto x = storage(d), y = storage(d), elsewhere = storage(e);
  q.fill(view(x), 1);
  struct Own {};
  EXPECT_THROW(q.submit_native("own", {}, {}, [](void*) { throw Own(); }), Own);
  Queue other(d);
  const std::string wrong_device =
      text_of<DeviceError>([&] { q.submit_native("wrong", {}, {}, [&](void*) { other.fill(view(elsewhere), 2); }); });
  expect_contains(wrong_device, {to_string(e)});
  EXPECT_NE(device_info(d).state, DeviceState::lost);
  EXPECT_NE(device_info(e).state, DeviceState::lost);
  // Work submitted before the exception is also waited for.
  std::atomic<bool> done = false;
  const std::array writes = {view(y)};
  EXPECT_THROW(q.submit_native("half", {}, writes,
                               [&](void* native) {
                                 test::put_native(native, [&] {
                                   std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                   done = true;
                                 });
                                 throw Own();
                               }),
               Own);
  y->wait_readable();
  EXPECT_TRUE(done);
  EXPECT_EQ(read(q, x)[0], 1u);
}

TEST_F(QueueTest, ReleasingWrappedQueueDoesNotWaitForWorkOfItsOwner) {
  const Device d = fresh();
  const auto x = storage(d), y = storage(d);
  Queue theirs(d);
  behaviour(d)->hold();
  theirs.fill(view(x), 1);
  std::thread watchdog([&] {  // if the code below waited, it would hang
    for (int i = 0; i < 500 && behaviour(d)->held; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    behaviour(d)->resume();
  });
  {
    const std::unique_ptr<Queue> nothing = Queue::wrap(d, theirs.native_handle());
    x->before_write(*nothing);
  }
  {
    const std::unique_ptr<Queue> some = Queue::wrap(d, theirs.native_handle());
    some->fill(view(y), 2);
  }
  EXPECT_TRUE(behaviour(d)->held) << "the owner's work was waited for";
  behaviour(d)->resume();
  watchdog.join();
  EXPECT_EQ(read(Queue::of(d), y)[0], 2u);
}

TEST_F(QueueTest, TwoErrorsFoundByInternalWaitsAreBothReported) {
  const Device d = fresh();
  Queue& q = Queue::of(d);
  const auto x = storage(d);
  q.fill(view(x), 1);
  q.finish();
  for (int i = 0; i < 2; ++i) {
    auto y = storage(d);
    behaviour(d)->fail_work = true;
    increment().launch({n, 1, 1}, {view(x), view(y)});
    y.reset();
    trim(d);  // waits for the work
    behaviour(d)->fail_work = false;
    if (i == 0) q.fill(view(x), 2);
  }
  expect_contains(text_of<KernelError>([&] { q.finish(); }),
                  {"failed on purpose", "newest first: increment, (fill). Later error: ",
                   "newest first: increment, (fill), increment, (fill)"});
  q.finish();
  EXPECT_EQ(read(q, x)[0], 2u);
}

TEST_F(QueueTest, EventCompletesAfterEarlierWork) {
  const Device d = fresh();
  Queue q(d);
  const auto other = std::make_unique<Queue>(d);
  const auto x = storage(d);
  behaviour(d)->hold();
  std::atomic<bool> done = false, was_done = false;
  q.submit_native("first", {}, {}, [&](void* native) {
    test::put_native(native, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  });
  const Event event = q.record(), copy = event;
  other->wait(event);
  other->submit_native("second", {}, {},
                       [&](void* native) { test::put_native(native, [&] { was_done = done.load(); }); });
  q.fill(view(x), 1);  // queued after the event
  EXPECT_FALSE(event.done());
  behaviour(d)->resume();
  other->finish();
  EXPECT_TRUE(was_done);
  copy.wait();
  EXPECT_TRUE(event.done());
  expect_contains(text_of<ArgumentError>([&] { q.submit_native("records", {}, {}, [&](void*) { q.record(); }); }),
                  {"uses the queue that it submits work to"});
}

TEST_F(QueueTest, EventOfWrappedQueueIncludesWorkEnqueuedDirectly) {
  const Device d = fresh();
  Queue theirs(d);
  const std::unique_ptr<Queue> ours = Queue::wrap(d, theirs.native_handle());
  const auto x = storage(d);
  ours->fill(view(x), 1);
  ours->record().wait();
  std::atomic<bool> done = false;
  test::put_native(theirs.native_handle(), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  ours->record().wait();
  EXPECT_TRUE(done);
}

TEST_F(QueueTest, EventOfFailedWorkIsDoneAndReportsErrorOnce) {
  const Device d = fresh();
  Queue& q = Queue::of(d);
  const auto x = storage(d), y = storage(d);
  q.fill(view(x), 1);
  q.finish();
  const auto failing = [&] {
    increment().launch({n, 1, 1}, {view(x), view(y)});
    const Event event = q.record();
    while (!event.done()) std::this_thread::yield();
    return event;
  };
  behaviour(d)->fail_work = true;
  const Event event = failing();
  behaviour(d)->fail_work = false;
  expect_contains(text_of<KernelError>([&] { event.wait(); }),
                  {"failed on purpose", "newest first: increment, (fill)"});
  event.wait();
  q.finish();
  q.record().wait();
  behaviour(d)->fail_record = true;
  q.fill(view(x), 2);
  expect_contains(text_of<OutOfMemory>([&] { q.record(); }), {"no event left", "(fill)"});
  behaviour(d)->fail_record = false;
  behaviour(d)->lose = true;
  const Event lost = failing();
  ::testing::internal::CaptureStderr();
  expect_contains(text_of<DeviceLost>([&] { lost.wait(); }), {"is lost", "illegal address"});
  ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(lost.done());
  text_of<DeviceError>([&] { lost.wait(); });
  text_of<DeviceError>([&] { q.record(); });
  text_of<DeviceError>([&] { q.wait(event); });
}

TEST_F(QueueTest, TryBeforeWriteReturnsFalseOnFailure) {
  const Device d = fresh();
  Queue& q = Queue::of(d);
  const auto x = storage(d);
  behaviour(d)->hold();
  q.fill(view(x), 1);  // no event is recorded, because this is the device's only queue
  Queue theirs(d);
  behaviour(d)->fail_record = true;
  EXPECT_FALSE(x->try_before_write(theirs));
  behaviour(d)->fail_record = false;
  test::run_with_timeout(
      [&] { q.submit_native("gives back", {}, {}, [&](void*) { EXPECT_FALSE(x->try_before_write(theirs)); }); });
  EXPECT_TRUE(x->try_before_write(theirs));
  behaviour(d)->resume();
  q.finish();  // none of the above is an error of this queue's work
  theirs.finish();
}

// Queues with a driver that computes within the call.

TEST_F(QueueTest, SynchronousWorkBlocksOnlyItsQueue) {
  const Device d = fresh();
  behaviour(d)->immediate = true;
  Queue& q = Queue::of(d);
  const auto x = storage(d), y = storage(d), z = storage(d);
  for (const auto& s : {x, y, z}) q.fill(view(s), 1);  // before a second queue exists
  increment().prepare(d);
  const Event before = q.record();
  EXPECT_EQ(behaviour(d)->records, 0);
  std::latch begun(1), others_done(1);
  test::set_body("increment", [&](const test::Launch& l) {
    if (l.shape[0] == 1) begun.count_down(), others_done.wait();
    for (std::uint64_t i = 0; i < l.shape[0]; ++i)
      l.arguments[1].as<std::uint32_t>()[i] = l.arguments[0].as<std::uint32_t>()[i] + 1;
  });
  test::run_with_timeout([&] {
    std::thread slow([&] { increment().launch({1, 1, 1}, {view(x), view(x)}); });
    begun.wait();
    const Event under_way = q.record();
    EXPECT_FALSE(under_way.done());
    EXPECT_TRUE(before.done());
    before.wait();
    Queue own(d);
    {
      const QueueScope with(own);
      increment().launch({n, 1, 1}, {view(y), view(z)});
    }
    EXPECT_EQ(read(own, z), std::vector<std::uint32_t>(n, 2));
    own.finish();
    storage(d, 10 * n);
    EXPECT_GE(trim(d), 10 * n * 4);
    // Work that needs the result waits for it, but not for the queue's next operation, which has already started.
    std::atomic<int> waited = 0;
    std::thread waits([&] { under_way.wait(), ++waited; });
    std::thread finishes([&] { q.finish(), ++waited; });
    std::thread orders([&] { own.wait(under_way), ++waited; });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(waited, 0);
    others_done.count_down();
    for (std::thread* t : {&slow, &waits, &finishes, &orders}) t->join();
    EXPECT_TRUE(under_way.done());
  });
  EXPECT_EQ(read(q, x)[0], 2u);
}

TEST_F(QueueTest, ErrorsOfSynchronousWorkAreThrownByTheCall) {
  const Device d = fresh();
  behaviour(d)->immediate = true;
  Queue& q = Queue::of(d);
  const auto x = storage(d), y = storage(d);
  q.fill(view(x), 1);
  behaviour(d)->fail_work = true;
  expect_contains(text_of<KernelError>([&] {
                    increment().launch({n, 1, 1}, {view(x), view(y)});
                  }),
                  {"failed on purpose", "newest first: increment, (fill)"});
  behaviour(d)->fail_work = false;
  q.finish();
  Queue other(d);
  other.copy(view(y), view(x));
  EXPECT_EQ(read(other, y)[0], 1u);
  expect_contains(text_of<ArgumentError>([&] { q.submit_native("finishes", {}, {}, [&](void*) { q.finish(); }); }),
                  {"uses the queue that it submits work to"});
  q.finish();
}

TEST_F(QueueTest, QueueOfLostDeviceMayBeDestroyedWhileInUse) {
  for (int round = 0; round < 20; ++round) {
    const Device d = fresh();
    const auto x = storage(d), y = storage(d);
    auto own = std::make_unique<Queue>(d);
    own->fill(view(x), 1);
    std::atomic<int> waits = 0;
    std::thread other([&] {
      try {
        for (;; ++waits) x->wait_writable(), y->wait_writable(), storage(d);
      } catch (const DeviceError&) {}
    });
    ::testing::internal::CaptureStderr();
    const std::string lost = text_of<DeviceLost>([&] {
      for (int i = 0;; ++i) {
        increment().launch({n, 1, 1}, std::vector<LaunchArgument>{view(x), view(y)}, own.get());
        if (waits > 10) behaviour(d)->lose = true;
        if (i % 4 == 3) own->finish();
      }
    });
    own.reset();
    other.join();
    ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(device_info(d).state, DeviceState::lost);
    expect_contains(lost, {"illegal address"});
  }
}

TEST_F(QueueTest, LostDeviceThrowsAndOthersKeepWorking) {
  const Device d = fresh(), e = fresh();
  auto x = storage(d), y = storage(e);
  Queue& q = Queue::of(d);
  Queue own(d);
  q.fill(view(x), 1);
  q.finish();
  behaviour(d)->lose = true;
  increment().launch({n, 1, 1}, {view(x), view(x)});
  ::testing::internal::CaptureStderr();
  const std::string lost = text_of<DeviceLost>([&] { read(q, x); });
  expect_contains(::testing::internal::GetCapturedStderr(),
                  {"tessera: warning: " + to_string(d), " is lost: ", "illegal address"});
  expect_contains(lost, {to_string(d), "the device is lost", "illegal address", "increment", "Restart"});
  behaviour(d)->lose = false;
  std::uint32_t host[n] = {};
  text_of<DeviceError>([&] { q.fill(view(x), 1); });
  text_of<DeviceError>([&] { q.upload(view(x), host); });
  text_of<DeviceError>([&] { q.download(host, view(x)); });
  text_of<DeviceError>([&] { q.finish(); });
  text_of<DeviceError>([&] { own.fill(view(x), 1); });
  text_of<DeviceError>([&] { storage(d); });
  text_of<DeviceError>([&] { Queue another(d); });
  text_of<DeviceError>([&] { increment().launch({n, 1, 1}, {view(x), view(x)}); });
  EXPECT_EQ(device_info(d).state, DeviceState::lost);
  expect_contains(device_info(d).reason, {"illegal address"});
  rescan();
  EXPECT_EQ(device_info(d).state, DeviceState::lost) << "permanently";
  x.reset();  // does not free the memory and does not throw
  Queue::of(e).fill(view(y), 4);
  EXPECT_EQ(read(Queue::of(e), y)[5], 4u);
}

TEST_F(QueueTest, SyncSettingWaitsAfterEachOperation) {
  ::setenv("TESSERA_SYNC", "1", 1);
  rescan();
  const Device d = fresh();
  behaviour(d)->max_delay_us = 300;
  const auto x = storage(d), y = storage(d);
  Queue& q = Queue::of(d);
  q.fill(view(x), 1);
  behaviour(d)->fail_work = true;
  expect_contains(text_of<KernelError>([&] {
                    increment().launch({n, 1, 1}, {view(x), view(y)});
                  }),
                  {"newest first: increment, (fill)"});
  behaviour(d)->fail_work = false;
  ::unsetenv("TESSERA_SYNC");
  rescan();
}

TEST_F(QueueTest, TraceSettingPrintsALinePerOperation) {
  ::setenv("TESSERA_TRACE", "1", 1);
  rescan();
  const Device d = fresh();
  const auto x = storage(d, 8), y = storage(d, 8);
  ::testing::internal::CaptureStderr();
  Queue::of(d).fill(view(x), 1);
  increment().launch({8, 1, 1}, {view(x), view(y)});
  read(Queue::of(d), y);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  ::unsetenv("TESSERA_TRACE");
  rescan();
  expect_contains(
      lines, {"fill on " + to_string(d) + " 32 bytes\n", "launch increment on " + to_string(d) + " threads 8 x 1 x 1\n",
              "download from " + to_string(d) + " 32 bytes\n"});
}

}  // namespace
}  // namespace tessera
