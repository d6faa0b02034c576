// SPDX-License-Identifier: Apache-2.0
// Several queues of a device that hand storages over without waiting, on every device: the order is kept by events that
// nobody sees. Over a fake driver a missing one is a breach of its rules, whatever the threads happened to do.
#include <gtest/gtest.h>

#include <thread>

#include "tessera/device/kernel.h"
#include "tessera/ir/value.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

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

/// y = x + 1, launched on the device's default queue.
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

TEST_P(OnEveryDevice, QueuesHandStoragesOverWithoutWaiting) {
  constexpr std::size_t n = 5000;
  const auto x = storage(GetParam(), n), y = storage(GetParam(), n), z = storage(GetParam(), n);
  Queue a(GetParam()), b(GetParam());
  for (std::uint32_t round = 0; round < 10; ++round) {
    a.fill(view(x), 10 * round);                        // after the last round's reads in both other queues
    increment().launch({n, 1, 1}, {view(x), view(y)});  // reads what `a` wrote
    b.copy(view(z), view(y));                           // reads what the default queue wrote
    a.copy(view(x), view(z));                           // and back
    increment().launch({n, 1, 1}, {view(x), view(y)});
    ASSERT_EQ(read(b, y), std::vector<std::uint32_t>(n, 10 * round + 2)) << "round " << round;
  }
}

TEST_P(OnEveryDevice, AStorageThatIsDroppedInUseIsNotGivenAway) {
  constexpr std::size_t n = 40000;
  Queue a(GetParam());
  for (std::uint32_t round = 0; round < 10; ++round) {
    const auto result = storage(GetParam(), n);
    {
      const auto scratch = storage(GetParam(), n);
      a.fill(view(scratch), round);
      a.copy(view(result), view(scratch));
    }
    const auto next = storage(GetParam(), n);  // may have the scratch memory; used on another queue
    Queue::of(GetParam()).fill(view(next), 0xffffffff);
    ASSERT_EQ(read(a, result), std::vector<std::uint32_t>(n, round));
    if (round == 5) trim(GetParam());
  }
}

TEST_P(OnEveryDevice, UploadsLargerThanWhatIsStagedMayBeOverwrittenAtOnce) {
  constexpr std::size_t n = (23u << 20) / 4 + 7;  // bytes: more than the driver's pieces hold
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

TEST_P(OnEveryDevice, ThreadsWithQueuesOfTheirOwn) {
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

}  // namespace
}  // namespace tessera
