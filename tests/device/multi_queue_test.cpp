// SPDX-License-Identifier: Apache-2.0
// Several queues of one device use the same storages without waiting on the host. Runs on every device. The work is
// ordered by internal events, or by explicit events for dependencies that the storages do not know. A fake driver
// detects missing events regardless of timing.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tessera/device/launch/kernel.h"
#include "tessera/ir/value.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/run_with_timeout.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

BufferView view(const std::shared_ptr<Storage>& s) { return {s, 0, s->bytes() / 4, DType::u32}; }
std::shared_ptr<Storage> storage(Device device, std::size_t elements) {
  return Storage::allocate(device, elements * 4);
}
std::vector<std::uint32_t> read(Queue& queue, const std::shared_ptr<Storage>& s) {
  std::vector<std::uint32_t> out(s->bytes() / 4, 0xdeadbeef);
  queue.download(out.data(), view(s));
  return out;
}

/// y = x + 1 on the device's default queue.
const Kernel& increment() {
  static const Kernel* kernel = [] {
    ir::Builder builder("increment", ir::KernelKind::map);
    ir::Builder::Scope scope(builder);
    const auto x = ir::buffer_param("x", DType::u32, ir::Access::read);
    const auto y = ir::buffer_param("y", DType::u32, ir::Access::read_write);
    y.store(ir::global_id(), x.load(ir::global_id()) + 1);
    return new Kernel(builder.finish());
  }();
  return *kernel;
}

TEST_P(OnEveryDevice, QueuesShareStoragesWithoutBlockingTheHost) {
  constexpr std::size_t n = 5000;
  const auto x = storage(GetParam(), n), y = storage(GetParam(), n), z = storage(GetParam(), n);
  Queue a(GetParam()), b(GetParam());
  for (std::uint32_t round = 0; round < 10; ++round) {
    a.fill(view(x), 10 * round);                        // after the reads of the previous round on both other queues
    increment().launch({n, 1, 1}, {view(x), view(y)});  // reads what `a` wrote
    b.copy(view(z), view(y));                           // reads what the default queue wrote
    a.copy(view(x), view(z));                           // and back
    increment().launch({n, 1, 1}, {view(x), view(y)});
    ASSERT_EQ(read(b, y), std::vector<std::uint32_t>(n, 10 * round + 2)) << "round " << round;
  }
}

TEST_P(OnEveryDevice, MemoryReleasedDuringUseIsNotReusedEarly) {
  constexpr std::size_t n = 40000;
  Queue a(GetParam());
  for (std::uint32_t round = 0; round < 10; ++round) {
    const auto result = storage(GetParam(), n);
    {
      const auto scratch = storage(GetParam(), n);
      a.fill(view(scratch), round);
      a.copy(view(result), view(scratch));
    }
    const auto next = storage(GetParam(), n);  // may reuse the scratch memory, on another queue
    Queue::of(GetParam()).fill(view(next), 0xffffffff);
    ASSERT_EQ(read(a, result), std::vector<std::uint32_t>(n, round));
    if (round == 5) trim(GetParam());
  }
}

// A tile of a block array, for example, is moved to another device before a task writes a part of it.
TEST_P(OnEveryDevice, ReadsOfUnwrittenMemoryWaitForItsPreviousOwner) {
  constexpr std::size_t n = 40000;
  Queue a(GetParam()), b(GetParam()), c(GetParam());
  const auto target = storage(GetParam(), n);
  for (Queue* reader : {&b, &c}) {
    const void* memory = nullptr;
    {
      const auto previous = storage(GetParam(), n);
      memory = previous->allocation().handle;
      a.fill(view(previous), 1);
    }
    const auto next = storage(GetParam(), n);
    ASSERT_EQ(next->allocation().handle, memory);
    if (reader == &b)
      b.copy(view(target), view(next));
    else
      read(c, next);
  }
}

TEST_P(OnEveryDevice, UploadSourceCanBeOverwrittenImmediately) {
  constexpr std::size_t n = (23u << 20) / 4 + 7;  // more bytes than the driver's staging buffers hold
  const auto x = storage(GetParam(), n);
  std::vector<std::uint32_t> data(n);
  for (std::uint32_t round = 1; round <= 2; ++round) {
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<std::uint32_t>(i) * 2654435761u + round;
    Queue::of(GetParam()).upload(view(x), data.data());
    std::vector<std::uint32_t> want(n, 0);
    want.swap(data);
    data.assign(n, 0xabababab);
    ASSERT_EQ(read(Queue::of(GetParam()), x), want) << "round " << round;
  }
}

TEST_P(OnEveryDevice, ThreadsCanUseSeparateQueuesConcurrently) {
  constexpr std::size_t n = 3000;
  const auto source = storage(GetParam(), n);
  Queue::of(GetParam()).fill(view(source), 7);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::uint32_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      Queue mine(GetParam());
      const auto x = storage(GetParam(), n), y = storage(GetParam(), n);
      for (std::uint32_t round = 0; round < 5; ++round) {
        mine.copy(view(x), view(source));
        increment().launch({n, 1, 1}, {view(x), view(y)});
        mine.copy(view(x), view(y));
        wrong += read(mine, x) != std::vector<std::uint32_t>(n, 8);
        mine.fill(view(y), t);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(OnEveryDevice, EventsOrderWorkOnAliasedStorages) {
  constexpr std::size_t n = 5000;
  Queue a(GetParam()), b(GetParam());
  const auto x = storage(GetParam(), n), y = storage(GetParam(), n);
  // Wrap the same memory twice, as another library might do. The storages don't know about each other's uses.
  const auto same = Storage::wrap_device(GetParam(), x->native_handle(), x->bytes(), x);
  Event read_by_b;
  for (std::uint32_t round = 0; round < 10; ++round) {
    a.wait(read_by_b);  // the first event is empty
    a.fill(view(x), round);
    b.wait(a.record());
    b.copy(view(y), view(same));
    read_by_b = b.record();
    if (round % 3 == 0) {
      ASSERT_EQ(read(b, y), std::vector<std::uint32_t>(n, round));
    }
  }
  read_by_b.wait();
  EXPECT_TRUE(read_by_b.done());
  EXPECT_EQ(read(b, y), std::vector<std::uint32_t>(n, 9));
  Event of_the_past;
  {
    Queue c(GetParam());
    c.fill(view(y), 5);
    of_the_past = c.record();
  }
  of_the_past.wait();
  a.wait(of_the_past);
  EXPECT_TRUE(of_the_past.done());
  EXPECT_TRUE(Event().done());
  Event().wait();
  const Device other = GetParam().backend == Backend::interp ? Device{} : Device{Backend::interp, 0};
  expect_throw<DeviceError>([&] { Queue(other).wait(of_the_past); },
                            {"Queue::wait", to_string(other), to_string(GetParam()), "Event::wait"});
}

// Does not measure time. If a queue's long kernel blocked another queue or the host, the test would hang.
TEST(CpuQueues, LongKernelBlocksOnlyItsOwnQueue) {
  const auto one_thread = [](const char* name, bool spins) {
    ir::Builder builder(name, ir::KernelKind::map);
    ir::Builder::Scope scope(builder);
    const auto flag = ir::buffer_param("flag", DType::u32, ir::Access::read_write);
    const auto out = ir::buffer_param("out", DType::u32, ir::Access::read_write);
    const auto at = [&](int expected, int fresh) { return flag.atomic_cas(ir::index_literal(0), expected, fresh); };
    if (spins) {
      flag.atomic(ir::AtomicOp::max, ir::index_literal(1), 1);  // signals that the kernel has started
      ir::while_([&] { return at(1, 1) == 0; }, [] {});
    } else {
      at(0, 1);
    }
    out.store(ir::global_id(), out.load(ir::global_id()) + 1);
    return Kernel(builder.finish());
  };
  const Kernel spin = one_thread("spin", true), set = one_thread("set", false);
  const Device cpu{};
  Queue& standard = Queue::of(cpu);
  alignas(64) std::uint32_t host[2] = {1, 0};
  // Two storages for the same memory. The library treats them as different.
  const auto flag = Storage::wrap_host(host, 8, nullptr), same = Storage::wrap_host(host, 8, nullptr);
  const auto x = storage(cpu, 1), y = storage(cpu, 1);
  for (const auto& s : {x, y}) standard.fill(view(s), 0);
  spin.launch({1, 1, 1}, {view(flag), view(x)});  // both kernels are compiled at this point
  const Event before = standard.record();
  set.launch({1, 1, 1}, {view(same), view(y)});  // `y` was last used on the default queue, without waiting for it
  host[0] = host[1] = 0;
  std::atomic<bool> over = false;
  test::run_with_timeout([&] {
    std::thread other([&] {
      spin.launch({1, 1, 1}, {view(flag), view(x)});
      over = true;
    });
    while (std::atomic_ref(host[1]).load() == 0) std::this_thread::yield();
    Queue own(cpu);
    while (!over) {
      const QueueScope with(own);
      set.launch({1, 1, 1}, {view(same), view(y)});
      before.wait();
      EXPECT_TRUE(before.done());
      const auto z = storage(cpu, 100);
      own.copy(view(z), view(z));
      own.record().wait();
      own.finish();
      trim(cpu);
    }
    other.join();
    standard.finish();
  });
  EXPECT_EQ(read(standard, x)[0], 2u);
  EXPECT_GE(read(standard, y)[0], 2u);
}

}  // namespace
}  // namespace tessera
