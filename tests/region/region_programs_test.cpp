// SPDX-License-Identifier: Apache-2.0
// Random task programs on one, two and four devices, with delays, failures and cancellations. Their results are
// compared with those of plain sequential loops.
//
// TESSERA_TEST_SEED selects the programs. TESSERA_REGION_PROGRAMS=N runs N programs instead of 300.
// TESSERA_REGION_MINUTES=N runs programs for N minutes and checks memory use. TESSERA_TEST_LONG=1 runs 10,000 programs
// (1,000 with the thread sanitizer), and checks memory use for half an hour.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stop_token>
#include <thread>

#include "tessera/base/test_seed.h"
#include "tessera/testing/testing.h"
#include "tests/region/region_program.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"
#include "tests/support/sanitized.h"

namespace tessera {
namespace {

using test::RegionProgram;
using namespace std::chrono_literals;

/// Returns sets of one, two and four devices: the devices of TESSERA_TEST_DEVICES, else the CPU and interpreters. They
/// are from as many backends as possible.
const std::vector<std::vector<Device>>& machines() {
  static const auto* const all = [] {
    std::vector<Device> found = testing::all_devices(), mixed;
    const auto also = [&](Device d) {
      if (std::ranges::find(mixed, d) == mixed.end()) mixed.push_back(d);
    };
    for (const Device d : found)  // first, one device of each backend
      if (std::ranges::none_of(mixed, [&](Device m) { return m.backend == d.backend; })) mixed.push_back(d);
    for (const Device d : found) also(d);
    for (std::uint32_t i = 0; mixed.size() < 4; ++i) also({Backend::interp, static_cast<int>(i)});
    const auto first = mixed.begin();
    return new std::vector<std::vector<Device>>{
        {mixed[0]}, {first, first + 2}, {first, first + 4}, {found.begin(), found.end()}};
  }();
  return *all;
}

std::optional<std::uint64_t> number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::optional(std::strtoull(text, nullptr, 10)) : std::nullopt;
}
std::uint64_t programs() {
  if (const auto asked = number_of("TESSERA_REGION_PROGRAMS")) return *asked;
  return std::getenv("TESSERA_TEST_LONG") == nullptr ? 300 : test::thread_sanitized ? 1'000 : 10'000;
}

/// Ends the process with an error message if no program has ended for two minutes.
class HangWatch {
 public:
  void alive(std::uint64_t seed) { seed_ = seed, at_ = std::chrono::steady_clock::now().time_since_epoch().count(); }

 private:
  std::atomic<std::uint64_t> seed_ = 0;
  std::atomic<std::chrono::steady_clock::rep> at_ = std::chrono::steady_clock::now().time_since_epoch().count();
  std::jthread thread_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(50ms);
      const std::chrono::steady_clock::duration since(std::chrono::steady_clock::now().time_since_epoch().count() -
                                                      at_);
      if (since < 2min) continue;
      std::fprintf(stderr, "the program of TESSERA_TEST_SEED=%llu hangs\n", static_cast<unsigned long long>(seed_));
      std::_Exit(3);
    }
  }};
};

RegionProgram::Counts counts;

void run_one(std::uint64_t i, HangWatch& watch) {
  const std::uint64_t seed = test_seed() + i;
  watch.alive(seed);
  const std::vector<Device>& devices = machines()[seed % machines().size()];
  RegionProgram program(seed, devices);
  ASSERT_EQ(program.run(), "") << "program " << i << ": TESSERA_TEST_SEED=" << seed << " TESSERA_REGION_PROGRAMS=1, on "
                               << devices.size() << " devices:\n"
                               << program.steps();
  const RegionProgram::Counts& c = program.counts();
  counts.tasks += c.tasks, counts.threw += c.threw, counts.skipped += c.skipped, counts.cancelled += c.cancelled;
  counts.combined += c.combined, counts.dropped += c.dropped, counts.open += c.open;
}

/// Returns ordering errors that the fake drivers of this process found, one per line.
std::string ordering_faults() {
  std::string all;
  for (const test::FakeBackend& f : test::fake_backends)
    if (const char* const file = std::getenv(f.driver_variable);
        file != nullptr && file == test::fake_library(f.driver))
      all += test::breaches(file);
  return all;
}

TEST(RegionPrograms, MatchSequentialExecutionOnOneTwoAndFourDevices) {
  ::setenv("TESSERA_WATCHDOG", "60", 0);
  HangWatch watch;
  for (std::uint64_t i = 0; i < programs() && !HasFailure(); ++i) run_one(i, watch);
  EXPECT_EQ(ordering_faults(), "");
  const auto n = [](std::uint64_t c) { return static_cast<unsigned long long>(c); };
  std::printf(
      "%llu tasks, of which %llu threw, %llu were skipped, %llu cancelled; %llu reductions were combined, %llu were "
      "dropped because tasks failed; %llu programs ended early because the outcome was ambiguous\n",
      n(counts.tasks), n(counts.threw), n(counts.skipped), n(counts.cancelled), n(counts.combined), n(counts.dropped),
      n(counts.open));
  if (programs() >= 100) {  // with only a few programs, there may be none
    EXPECT_GT(counts.threw, 0u);
    EXPECT_GT(counts.skipped, 0u);
    EXPECT_GT(counts.cancelled, 0u);
    EXPECT_GT(counts.combined, 0u);
    EXPECT_GT(counts.dropped, 0u);
    EXPECT_LE(counts.open, 1 + programs() / 50);
  }
}

std::uint64_t resident() {
  std::uint64_t all = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * 4096;
}

TEST(RegionPrograms, LongRunDoesNotLeakOrHang) {
  const auto asked = number_of("TESSERA_REGION_MINUTES");
  // Sanitizers allocate memory that is not freed.
  if (!asked && (std::getenv("TESSERA_TEST_LONG") == nullptr || test::sanitized))
    GTEST_SKIP() << "takes half an hour: set TESSERA_TEST_LONG=1 or TESSERA_REGION_MINUTES=N";
  ::setenv("TESSERA_WATCHDOG", "60", 0);
  // PoCL's compiler allocates 130 MiB for the first kernel that is not cached. With an empty cache, this happens early.
  const test::Folder kernels;
  ::setenv("POCL_CACHE_DIR", kernels.path().c_str(), 1);
  HangWatch watch;
  const auto begin = std::chrono::steady_clock::now(), end = begin + std::chrono::minutes(asked.value_or(30));
  const auto warm = begin + (end - begin) / 3;  // by then, all shapes have occurred and the pools are full
  std::uint64_t before = 0, done = 0, after = 0;
  for (; std::chrono::steady_clock::now() < end && !HasFailure(); ++done) {
    run_one(done, watch);
    if (before == 0 && std::chrono::steady_clock::now() > warm) before = resident();
  }
  after = resident();
  std::printf("%llu programs of %llu tasks; resident: %.1f MiB after a third, %.1f MiB at the end\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(counts.tasks),
              static_cast<double>(before) / (1 << 20), static_cast<double>(after) / (1 << 20));
  EXPECT_LE(after, before + (8u << 20));
}

}  // namespace
}  // namespace tessera
