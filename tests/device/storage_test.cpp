// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/memory/storage.h"
#include "tessera/base/test_seed.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/system.h"
#include "tessera/device/memory/pool.h"
#include "tessera/device/setting_names.h"
#include "tests/device/deferred.h"
#include "tests/support/device_fixture.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::text_of;
constexpr std::size_t kib = 1024, mib = 1024 * 1024;

class StorageTest : public test::DeviceTest {};

BufferView whole(const std::shared_ptr<Storage>& s) { return {s, 0, s->bytes(), DType::u8}; }

TEST_F(StorageTest, SizeClassesAreFewAndWasteLittle) {
  std::size_t classes = 0, before = 0;
  for (std::size_t n = 0; n <= 64 * kib; ++n) {
    const std::size_t c = size_class(n);
    ASSERT_GE(c, n);
    ASSERT_GE(c, before) << "larger requests never get smaller classes";
    ASSERT_TRUE(n <= 256 || c - n < c / 4) << n;
    ASSERT_EQ(size_class(c), c);
    classes += c != before;
    before = c;
  }
  EXPECT_EQ(size_class(0), 256u);
  EXPECT_EQ(size_class(1), 256u);
  EXPECT_EQ(size_class(257), 320u);
  EXPECT_LE(classes, 40u);
  EXPECT_EQ(size_class(100 * mib), 112 * mib);
}

TEST_F(StorageTest, SupportsEmptyStorages) {
  const auto empty = Storage::allocate(fresh(), 0, "nothing");
  EXPECT_EQ(empty->bytes(), 0u);
  Queue& q = Queue::of(empty->device());
  q.upload(whole(empty), nullptr);
  q.download(nullptr, whole(empty));
  q.fill(whole(empty), 1);
  q.copy(whole(empty), whole(empty));
  q.finish();
}

TEST_F(StorageTest, FreedMemoryIsReusedCountedAndTrimmed) {
  const Device d = fresh();
  const int at_start = [&] {
    Queue::of(d).finish();
    return behaviour(d)->live_allocations.load();
  }();
  EXPECT_EQ(at_start, 0) << "verification frees its memory";
  auto a = Storage::allocate(d, 1000, "a");
  MemoryStats s = memory_stats(d);
  EXPECT_EQ(s.live_bytes, 1024u);
  EXPECT_EQ(s.cached_bytes, 0u);
  EXPECT_EQ(s.allocations, 1u);
  a.reset();
  s = memory_stats(d);
  EXPECT_EQ(s.live_bytes, 0u);
  EXPECT_EQ(s.cached_bytes, 1024u);
  a = Storage::allocate(d, 900);  // has the same size class
  s = memory_stats(d);
  EXPECT_EQ(s.reuses, 1u);
  EXPECT_EQ(s.allocations, 1u);
  auto b = Storage::allocate(d, 1000);
  EXPECT_EQ(memory_stats(d).allocations, 2u);
  EXPECT_EQ(memory_stats(d).peak_bytes, 2048u);
  a.reset(), b.reset();
  EXPECT_EQ(trim(d), 2048u);
  EXPECT_EQ(trim(d), 0u);
  EXPECT_EQ(behaviour(d)->live_allocations, 0);
  s = memory_stats(d);
  EXPECT_EQ(s.live_bytes + s.cached_bytes, 0u);
  EXPECT_EQ(s.peak_bytes, 2048u);
}

TEST_F(StorageTest, LimitsCachedBytes) {
  const Device d = fresh();  // of 1 GiB, up to a quarter may be cached
  std::vector<std::shared_ptr<Storage>> many;
  for (int i = 0; i < 6; ++i) many.push_back(Storage::allocate(d, 64 * mib));
  EXPECT_EQ(memory_stats(d).live_bytes, 384 * mib);
  many.clear();
  EXPECT_LE(memory_stats(d).cached_bytes, 256 * mib);
  EXPECT_GE(memory_stats(d).cached_bytes, 192 * mib);
  EXPECT_EQ(behaviour(d)->live_bytes, memory_stats(d).cached_bytes);
}

TEST_F(StorageTest, BudgetIsCheckedBeforeAllocation) {
  const Device d = fresh();
  Queue::of(d);
  set_memory_limit(d, 10 * mib);
  EXPECT_EQ(memory_stats(d).limit_bytes, 10 * mib);
  const int driver_calls = behaviour(d)->allocations;
  std::vector<std::shared_ptr<Storage>> live;
  for (int i = 1; i <= 7; ++i)
    live.push_back(Storage::allocate(d, static_cast<std::size_t>(i) * 256 * kib, "tensor " + std::to_string(i)));
  const int after = behaviour(d)->allocations;
  EXPECT_EQ(after, driver_calls + 7);
  const std::string text = text_of<OutOfMemory>([&] { Storage::allocate(d, 8 * mib, "logits"); });
  expect_contains(text,
                  {"[allocate logits]", to_string(d), "8 MiB requested", "3 MiB free of 10 MiB", "set_memory_limit",
                   "largest of 7 live = tensor 7 1.75 MiB, tensor 6 1.50 MiB, tensor 5 1.25 MiB, tensor 4 1 MiB, "
                   "tensor 3 768 KiB",
                   "Free some of these, or use smaller shapes or types, or raise the limit"});
  EXPECT_EQ(text.find("tensor 2"), std::string::npos) << "only the five largest";
  EXPECT_EQ(behaviour(d)->allocations, after) << "the driver was not called";
  // The process can continue and compute correctly.
  std::vector<std::uint8_t> data(256 * kib), back(256 * kib, 0xAA);
  std::mt19937_64 random(test_seed());
  for (auto& b : data) b = static_cast<std::uint8_t>(random());
  Queue::of(d).upload(whole(live[0]), data.data());
  Queue::of(d).download(back.data(), whole(live[0]));
  EXPECT_EQ(data, back);
  live.clear();
  const auto fits = Storage::allocate(d, 8 * mib);  // cached blocks of other sizes are freed for this allocation
  EXPECT_LE(memory_stats(d).live_bytes + memory_stats(d).cached_bytes, 10 * mib);
  set_memory_limit(d, 0);
  EXPECT_EQ(memory_stats(d).limit_bytes, 0u);
  const auto more = Storage::allocate(d, 32 * mib);
}

TEST_F(StorageTest, LoweringTheBudgetTrimsImmediately) {
  const Device d = fresh();
  Storage::allocate(d, 4 * mib).reset();
  EXPECT_EQ(memory_stats(d).cached_bytes, 4 * mib);
  set_memory_limit(d, mib);
  EXPECT_EQ(memory_stats(d).cached_bytes, 0u);
  EXPECT_EQ(behaviour(d)->live_allocations, 0);
}

TEST_F(StorageTest, EnvironmentSetsBudgetPerDevice) {
  ::setenv("TESSERA_MEMORY_LIMIT", "1M", 1);
  rescan();
  const Device d = fresh();
  const auto a = Storage::allocate(d, 512 * kib);
  expect_contains(text_of<OutOfMemory>([&] { Storage::allocate(d, mib); }),
                  {"TESSERA_MEMORY_LIMIT", "512 KiB free of 1 MiB"});
  ::setenv("TESSERA_MEMORY_LIMIT", "12Q", 1);
  rescan();
  expect_contains(text_of<ArgumentError>([&] { Storage::allocate(d, 8 * mib); }),
                  {"TESSERA_MEMORY_LIMIT=12Q: expected a byte count such as \"512M\""});
  ::unsetenv("TESSERA_MEMORY_LIMIT");
  rescan();
  const auto b = Storage::allocate(d, 2 * mib);
}

TEST_F(StorageTest, DeviceMemoryLimitsAllocation) {
  const Device d = fresh();
  expect_contains(text_of<OutOfMemory>([&] { Storage::allocate(d, std::size_t{2} << 30); }),
                  {"2 GiB requested", "1 GiB free of 1 GiB", "the device's memory", "Use smaller shapes or types"});
  expect_contains(text_of<OutOfMemory>([&] { Storage::allocate(d, ~std::size_t{0}); }), {"not have enough memory"});
}

TEST_F(StorageTest, RejectsAllocationsBeyondHostMemory) {
  // Larger than the machine's memory. Otherwise, the allocation would succeed, and the kernel would kill the process
  // when it writes to the memory.
  const Device d = fresh(Backend::cpu);
  const std::uint64_t available = os::memory().available;
  ASSERT_GT(available, 0u);
  EXPECT_LE(free_memory(d), available);
  EXPECT_GT(memory_stats(d).limit_bytes, 0u);
  set_memory_limit(d, ~std::uint64_t{0} / 2);
  const std::string none = text_of<OutOfMemory>([&] { Storage::allocate(d, available * 2); });
  expect_contains(none, {"not have enough memory", "Use smaller shapes or types"});
  EXPECT_EQ(none.find("Free some"), none.npos) << none;
  const auto fits = Storage::allocate(d, mib);
}

TEST_F(StorageTest, TrimsAndRetriesWhenDriverIsOutOfMemory) {
  const Device d = fresh();
  Storage::allocate(d, 4 * mib).reset();
  behaviour(d)->fail_allocation_in = 1;
  logging::set_level(logging::Level::info);
  ::testing::internal::CaptureStderr();
  const auto a = Storage::allocate(d, 2 * mib, "after a retry");  // the second attempt succeeds
  logging::set_level(logging::Level::warn);
  expect_contains(
      ::testing::internal::GetCapturedStderr(),
      {"tessera: " + to_string(d) + ": the driver has no memory for 2 MiB: trimming the pool and retrying\n",
       "trimmed, 4 MiB freed\n"});
  EXPECT_EQ(memory_stats(d).cached_bytes, 0u) << "trimmed before the retry";
  // If the retry also fails, an error with the driver's message is thrown.
  behaviour(d)->failing_allocations = 2;
  behaviour(d)->fail_allocation_in = 1;
  const std::string text = text_of<OutOfMemory>([&] { Storage::allocate(d, 3 * mib, "b"); });
  expect_contains(text, {"the test driver has no memory", "after a retry 2 MiB"});
  EXPECT_EQ(memory_stats(d).live_bytes, 2 * mib) << "failed allocations are not counted";
  const auto b = Storage::allocate(d, 3 * mib);
  // A later allocation fails, and the earlier ones stay valid.
  behaviour(d)->fail_allocation_in = 3;
  const auto c = Storage::allocate(d, mib), e = Storage::allocate(d, mib), f = Storage::allocate(d, mib);
  EXPECT_EQ(memory_stats(d).live_bytes, 8 * mib);
}

TEST_F(StorageTest, MemoryIsReusedSafelyWhileOldWorkRuns) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 300;
  std::mt19937 random(static_cast<unsigned>(test_seed()));
  Queue other(d);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::uint8_t> first(4096), second(4096), got(4096, 0xAA), kept_back(4096, 0xAA);
    for (auto& b : first) b = static_cast<std::uint8_t>(random());
    for (auto& b : second) b = static_cast<std::uint8_t>(random());
    const auto kept = Storage::allocate(d, 4096);
    {
      // It was read on one queue and written on another when its last reference was released.
      const auto old = Storage::allocate(d, 4096);
      Queue& writer = round % 2 ? other : Queue::of(d);
      Queue& reader = round % 2 ? Queue::of(d) : other;
      writer.upload(whole(old), first.data());
      reader.copy(whole(kept), whole(old));
    }
    const auto fresh_one = Storage::allocate(d, 4096);
    Queue::of(d).upload(whole(fresh_one), second.data());
    Queue::of(d).download(got.data(), whole(fresh_one));
    EXPECT_EQ(got, second);
    Queue::of(d).download(kept_back.data(), whole(kept));
    EXPECT_EQ(kept_back, first) << "the old reader saw the new owner's bytes";
  }
  EXPECT_GT(memory_stats(d).reuses, 50u);
}

TEST_F(StorageTest, TrimWaitsForRunningWork) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 500;
  for (int i = 0; i < 20; ++i) {
    auto a = Storage::allocate(d, 4096), b = Storage::allocate(d, 4096);
    Queue::of(d).fill(whole(a), 7);
    Queue::of(d).copy(whole(b), whole(a));
    a.reset(), b.reset();
    EXPECT_EQ(trim(d), 8192u);  // the driver reports an error if work still uses the memory
  }
}

TEST_F(StorageTest, WrappedHostMemoryKeepsOwnerAlive) {
  driver(Backend::cpu);
  auto owner = std::make_shared<std::vector<float>>(100, 1.5f);
  std::weak_ptr<std::vector<float>> watch = owner;
  const auto storage = Storage::wrap_host(owner->data(), 400, owner);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(storage->device(), (Device{Backend::cpu, 0}));
  EXPECT_EQ(storage->allocation().host, reinterpret_cast<std::byte*>(watch.lock()->data()));
  EXPECT_TRUE(storage->exposed());
  auto s = storage;
  EXPECT_EQ(storage.use_count(), 2);
  s.reset();
  const_cast<std::shared_ptr<Storage>&>(storage).reset();
  EXPECT_TRUE(watch.expired());
  text_of<ArgumentError>([] { Storage::wrap_host(nullptr, 4, nullptr); });
  Storage::wrap_host(nullptr, 0, nullptr);
}

TEST_F(StorageTest, ManyThreadsAllocateAndFree) {
  const Device d = fresh();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(test_seed()) + static_cast<unsigned>(t));
      std::vector<std::shared_ptr<Storage>> mine;
      for (int i = 0; i < 2000; ++i) {
        if (mine.size() > 10 || (random() % 2 && !mine.empty()))
          mine.erase(mine.begin() + random() % mine.size());
        else
          mine.push_back(Storage::allocate(d, random() % 5000, "thread " + std::to_string(t)));
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(memory_stats(d).live_bytes, 0u);
  trim(d);
  EXPECT_EQ(behaviour(d)->live_allocations, 0);
}

TEST_F(StorageTest, WritingComputesPendingReadersFirst) {
  const Device d = fresh();
  behaviour(d)->max_delay_us = 100;
  const auto x = Storage::allocate(d, 1024), z = Storage::allocate(d, 1024);
  Queue& q = Queue::of(d);
  q.fill(whole(x), 1);
  auto reader = std::make_shared<testing::Deferred>();
  reader->on_flush = [&] { q.copy(whole(z), whole(x)); };  // uses the same queue and storage
  const auto check = [&](auto&& write, int flushes) {
    reader->read(x);
    write();
    EXPECT_EQ(reader->flushes, flushes);
    std::vector<std::uint8_t> got(1024, 0xAA);
    q.download(got.data(), whole(z));
    for (std::uint8_t b : got) ASSERT_EQ(b, flushes) << "the pending reader saw a later write";
  };
  std::vector<std::uint8_t> threes(1024, 3);
  check([&] { q.fill(whole(x), 2); }, 1);
  check([&] { q.upload(whole(x), threes.data()); }, 2);
  const auto y = Storage::allocate(d, 1024);
  q.fill(whole(y), 9);
  check([&] { q.copy(whole(x), whole(y)); }, 3);
  // Reads don't flush pending readers, and a removed reader is skipped.
  reader->read(x);
  std::vector<std::uint8_t> got(1024);
  q.download(got.data(), whole(x));
  q.copy(whole(y), whole(x));
  EXPECT_EQ(reader->flushes, 3);
  reader.reset();
  q.fill(whole(x), 5);
}

TEST_F(StorageTest, FailedFlushPreventsWrite) {
  const Device d = fresh();
  const auto x = Storage::allocate(d, 16);
  Queue& q = Queue::of(d);
  q.fill(whole(x), 1);
  auto bad = std::make_shared<testing::Deferred>(), good = std::make_shared<testing::Deferred>();
  bad->on_flush = [] { fail<OutOfMemory>({.wrong = "no room for the result"}); };
  bad->read(x);
  good->read(x);
  for (int i = 0; i < 2; ++i)
    expect_contains(text_of<OutOfMemory>([&] { q.fill(whole(x), 2); }), {"no room for the result"});
  std::uint8_t got[16];
  q.download(got, whole(x));
  EXPECT_EQ(got[0], 1);
  bad->on_flush = nullptr;
  q.fill(whole(x), 2);
  EXPECT_EQ(good->flushes, 1);
  q.download(got, whole(x));
  EXPECT_EQ(got[15], 2);
}

TEST(Config, ParsesByteCountsWithUnits) {
  EXPECT_EQ(config::parse_bytes("0"), 0u);
  EXPECT_EQ(config::parse_bytes("123"), 123u);
  EXPECT_EQ(config::parse_bytes("4k"), 4096u);
  EXPECT_EQ(config::parse_bytes("512M"), 512u * mib);
  EXPECT_EQ(config::parse_bytes("1.5G"), 1536u * mib);
  EXPECT_EQ(config::parse_bytes("2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(config::parse_bytes("1TB"), std::uint64_t{1} << 40);
  for (const char* bad : {"", "M", "-1", "12Q", "1.2.3", "1e9", "4 M", "nan", "inf", "99999999999G", "5MM"})
    EXPECT_EQ(config::parse_bytes(bad), std::nullopt) << bad;
  EXPECT_EQ(config::format_bytes(0), "0 bytes");
  EXPECT_EQ(config::format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(config::format_bytes(mib), "1 MiB");
}

TEST(Config, InvalidValueErrorNamesVariable) {
  ::setenv("TESSERA_TEST_VALUE", "maybe", 1);
  expect_contains(text_of<ArgumentError>([] { config::flag("TESSERA_TEST_VALUE", true); }),
                  {"TESSERA_TEST_VALUE=maybe", "expected 1 or 0"});
  expect_contains(text_of<ArgumentError>([] { config::integer("TESSERA_TEST_VALUE", 1, 9); }),
                  {"a whole number from 1 to 9"});
  expect_contains(text_of<ArgumentError>([] { config::choice("TESSERA_TEST_VALUE", {"a", "b"}); }), {"one of a, b"});
  ::setenv("TESSERA_TEST_VALUE", "Yes", 1);
  EXPECT_TRUE(config::flag("TESSERA_TEST_VALUE", false));
  ::setenv("TESSERA_TEST_VALUE", "", 1);
  EXPECT_TRUE(config::flag("TESSERA_TEST_VALUE", true)) << "an empty variable counts as unset";
  ::setenv("TESSERA_TEST_VALUE", "10", 1);
  EXPECT_EQ(config::integer("TESSERA_TEST_VALUE", 1, 10), 10);
  text_of<ArgumentError>([] { config::integer("TESSERA_TEST_VALUE", 1, 9); });
  ::unsetenv("TESSERA_TEST_VALUE");
  EXPECT_EQ(config::integer("TESSERA_TEST_VALUE", 1, 9), std::nullopt);
}

/// A file tree like the kernel's /proc and /sys.
class Groups : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("tessera_groups_" + std::to_string(test_seed()));
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  auto ask() { return os::group_memory(root_ / "proc", root_ / "groups"); }
  std::filesystem::path root_;
};

TEST_F(Groups, UsesLowestLimitOfVersion2Groups) {
  EXPECT_EQ(os::memory(root_ / "proc").total, 1000u * 1024);
  EXPECT_EQ(os::memory(root_ / "proc").available, 600u * 1024);
  const os::Memory here = os::memory(), without = os::memory(root_ / "no" / "proc");
  EXPECT_NEAR(static_cast<double>(without.total), static_cast<double>(here.total),
              0.05 * static_cast<double>(here.total));
  EXPECT_GT(without.available, 0u);
  EXPECT_LE(without.available, without.total);
  EXPECT_FALSE(ask()) << "no groups at all";
  write("proc/self/cgroup", "0::/a/b\n");
  write("groups/a/b/memory.max", "max\n");
  EXPECT_FALSE(ask()) << "no limit";
  write("groups/a/memory.max", "1000000\n");
  write("groups/a/memory.current", "300000\n");
  write("groups/a/memory.stat", "anon 1\ninactive_file 100000\n");
  ASSERT_TRUE(ask());
  EXPECT_EQ(ask()->limit, 1000000u);
  EXPECT_EQ(ask()->free, 800000u) << "file caches can be dropped";
  write("groups/a/b/memory.max", "500000\n");
  write("groups/a/b/memory.current", "600000\n");
  EXPECT_EQ(ask()->limit, 500000u);
  EXPECT_EQ(ask()->free, 0u);
}

TEST_F(Groups, ReadsVersion1LimitsIfGroupIsNotMounted) {
  write("proc/self/cgroup", "5:cpu:/\n4:memory:/not/shown/here\n0::/\n");
  write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(ask()) << "version 1 represents no limit by a large number";
  write("groups/memory/memory.limit_in_bytes", "4096000\n");
  write("groups/memory/memory.usage_in_bytes", "96000\n");
  ASSERT_TRUE(ask());
  EXPECT_EQ(ask()->free, 4000000u);
}

TEST(Settings, NamesAreThoseOfThePage) {
  std::ifstream file("docs/map.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = page.find("## Settings"), end = page.find("**Tests**", begin);
  ASSERT_LT(begin, end);
  std::set<std::string> wanted = {"API_KEY"};  // docs/serve.md
  const std::regex name("TESSERA_([A-Z0-9_]+)");
  const std::string part = page.substr(begin, end - begin);
  for (std::sregex_iterator m(part.begin(), part.end(), name), last; m != last; ++m) wanted.insert((*m)[1]);
  EXPECT_EQ(std::set<std::string>(setting_names().begin(), setting_names().end()), wanted);
}

TEST(Settings, MisspeltNamesAreReported) {
  const auto texts = misspelt_settings({"TESSERA_DEVISE=cuda:0", "TESSERA_DEVICE=cuda:0", "TESSERA_THREAD=2",
                                        "TESSERA_KERNEL_CACHE_SZIE=1G", "TESSERA_TEST_SEED=1", "TESSERA_HOME=/x",
                                        "TESSERA_=", "PATH=/bin"});
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[0], "TESSERA_DEVISE is set, but there is no such setting; did you mean TESSERA_DEVICE?");
  EXPECT_NE(texts[1].find("TESSERA_THREADS?"), std::string::npos);
  EXPECT_NE(texts[2].find("TESSERA_KERNEL_CACHE_SIZE?"), std::string::npos);
}

}  // namespace
}  // namespace tessera
