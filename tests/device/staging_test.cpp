// SPDX-License-Identifier: Apache-2.0
// Copies between devices without host-addressable memory. They use several buffers of pinned memory, and downloads
// overlap with uploads. The test driver has delays and checks every access.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "tessera/base/test_seed.h"
#include "tessera/device/memory/staging.h"
#include "tessera/device/placement/placement_scope.h"
#include "tests/support/device_fixture.h"

namespace tessera {
namespace {

using test::DeviceTest;
class Staging : public DeviceTest {};

constexpr std::uint64_t mebi = 1024 * 1024;

BufferView bytes_of(const std::shared_ptr<Storage>& s, std::uint64_t at, std::uint64_t n) {
  return {s, at, n, DType::u8};
}
std::vector<std::uint8_t> random_bytes(std::uint64_t n) {
  std::mt19937_64 random(test_seed());
  std::vector<std::uint8_t> out(n);
  for (auto& b : out) b = static_cast<std::uint8_t>(random());
  return out;
}
std::vector<std::uint8_t> read(const std::shared_ptr<Storage>& s) {
  std::vector<std::uint8_t> out(s->bytes(), 0xAA);
  Queue::of(s->device()).download(out.data(), bytes_of(s, 0, s->bytes()));
  return out;
}

TEST_F(Staging, CopiesAllSizesCorrectly) {
  for (const std::uint64_t n : {std::uint64_t{1}, 4 * mebi, 4 * mebi + 1, 13 * mebi + 7}) {
    const Device a = fresh(), b = fresh();
    behaviour(a)->max_delay_us = 2000;
    behaviour(b)->max_delay_us = 2000;
    const auto data = random_bytes(n);
    const auto from = Storage::allocate(a, n + 3), to = Storage::allocate(b, n + 5);
    Queue::of(b).fill(bytes_of(to, 0, n + 5), 0x77);
    Queue::of(a).upload(bytes_of(from, 3, n), data.data());
    {
      const Placement scope;
      Queue::of(b).copy(bytes_of(to, 5, n), bytes_of(from, 3, n));
      std::uint64_t down = 0, up = 0, direct = 0;
      for (const auto& c : scope.log().copies)
        down += c.to_host_bytes, up += c.to_device_bytes, direct += c.from_peers_count + c.within_count;
      EXPECT_EQ(std::tuple(down, up, direct), std::tuple(n, n, std::uint64_t{0})) << "through the host, once";
    }
    auto got = read(to);
    EXPECT_EQ(std::vector<std::uint8_t>(got.begin(), got.begin() + 5), std::vector<std::uint8_t>(5, 0x77));
    EXPECT_TRUE(std::equal(data.begin(), data.end(), got.begin() + 5)) << n;
  }
}

TEST_F(Staging, DownloadOverlapsUploadOfPreviousPart) {
  const Device a = fresh(), b = fresh();
  const auto data = random_bytes(12 * mebi);
  const auto from = Storage::allocate(a, data.size()), to = Storage::allocate(b, data.size());
  Queue::of(a).upload(bytes_of(from, 0, data.size()), data.data());
  Queue::of(a).finish();
  behaviour(b)->hold();  // uploads cannot start
  Queue::of(b).copy(bytes_of(to, 0, data.size()), bytes_of(from, 0, data.size()));
  // The call returned after all data was downloaded, although the target has not received any of it yet.
  const auto over = random_bytes(data.size() + 1);
  // Data that was already downloaded is not read again.
  Queue::of(a).upload(bytes_of(from, 0, data.size()), over.data());
  behaviour(b)->resume();
  EXPECT_EQ(read(to), data);
}

TEST_F(Staging, ReusesLimitsAndTrimsPinnedMemory) {
  const Device a = fresh(), b = fresh();
  const auto from = Storage::allocate(a, 16 * mebi), to = Storage::allocate(b, 16 * mebi);
  const int before = behaviour(a)->live_allocations;
  for (int i = 0; i < 3; ++i) Queue::of(b).copy(bytes_of(to, 0, 16 * mebi), bytes_of(from, 0, 16 * mebi));
  Queue::of(b).finish();
  EXPECT_EQ(behaviour(a)->live_allocations, before + 2);
  trim(a);
  EXPECT_EQ(behaviour(a)->live_allocations, before);
  const Device c = fresh();  // a small copy uses one staging buffer
  const auto little = Storage::allocate(c, 64);
  const int small = behaviour(c)->live_allocations;
  Queue::of(b).copy(bytes_of(to, 0, 64), bytes_of(little, 0, 64));
  EXPECT_EQ(behaviour(c)->live_allocations, small + 1);
}

TEST_F(Staging, FallsBackToPageableMemory) {
  for (const int fail_at : {1, 2}) {
    const Device a = fresh(), b = fresh();
    const auto data = random_bytes(9 * mebi);
    const auto from = Storage::allocate(a, data.size()), to = Storage::allocate(b, data.size());
    Queue::of(a).upload(bytes_of(from, 0, data.size()), data.data());
    behaviour(a)->failing_allocations = 1000;
    behaviour(a)->fail_allocation_in = fail_at;  // no staging buffer, or only one
    Queue::of(b).copy(bytes_of(to, 0, data.size()), bytes_of(from, 0, data.size()));
    behaviour(a)->fail_allocation_in = 0;
    EXPECT_EQ(read(to), data);
  }
}

TEST_F(Staging, SourceErrorIsThrownAndTargetStaysUsable) {
  const Device a = fresh(), b = fresh();
  const auto from = Storage::allocate(a, 9 * mebi), to = Storage::allocate(b, 9 * mebi);
  behaviour(a)->lose = true;
  EXPECT_THROW(Queue::of(b).copy(bytes_of(to, 0, 9 * mebi), bytes_of(from, 0, 9 * mebi)), DeviceError);
  const std::uint8_t one = 1;
  Queue::of(b).upload(bytes_of(to, 0, 1), &one);
  EXPECT_EQ(read(to)[0], 1);
}

TEST_F(Staging, FillingMemoryInPlaceKeepsUsesOfOtherParts) {
  const Device d = fresh();
  behaviour(d)->host_visible = true;
  const auto data = random_bytes(2000);
  const auto storage = Storage::allocate(d, data.size());
  Queue& queue = Queue::of(d);
  queue.fill(bytes_of(storage, 0, data.size()), 0);
  EXPECT_TRUE(upload_in_place(queue, bytes_of(storage, 0, 1000), [&](std::byte* to) {
    std::memcpy(to, data.data(), 1000);
    behaviour(d)->hold();
    queue.upload(bytes_of(storage, 1000, 1000), data.data() + 1000);  // as another thread would
  }));
  std::thread resumes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    behaviour(d)->resume();
  });
  EXPECT_EQ(read(storage), data) << "the download waits for the upload";
  resumes.join();
  const int before = behaviour(d)->records;
  EXPECT_TRUE(upload_in_place(queue, bytes_of(storage, 0, 1000), [](std::byte*) {}));
  EXPECT_EQ(read(storage), data);
  EXPECT_EQ(behaviour(d)->records, before) << "uses that ended are forgotten";
}

TEST_F(Staging, ThreadsCopyInBothDirections) {
  const Device a = fresh(), b = fresh();
  behaviour(a)->max_delay_us = 500;
  behaviour(b)->max_delay_us = 500;
  const auto data = random_bytes(9 * mebi);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Device source = t % 2 ? a : b, target = t % 2 ? b : a;
      const auto from = Storage::allocate(source, data.size()), to = Storage::allocate(target, data.size());
      Queue::of(source).upload(bytes_of(from, 0, data.size()), data.data());
      Queue::of(target).copy(bytes_of(to, 0, data.size()), bytes_of(from, 0, data.size()));
      EXPECT_EQ(read(to), data);
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace tessera
