// SPDX-License-Identifier: Apache-2.0
// Runs the cases of a fuzz test, limits their time and memory, and prints the progress of long runs.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>

#include "tessera/base/test_seed.h"
#include "tests/support/sanitized.h"

namespace tessera::test {

/// Returns the number of cases: TESSERA_FUZZ_CASES, or a million with TESSERA_TEST_LONG=1, or 2,000.
inline std::uint64_t fuzz_cases() {
  if (const char* many = std::getenv("TESSERA_FUZZ_CASES")) return std::strtoull(many, nullptr, 10);
  return std::getenv("TESSERA_TEST_LONG") != nullptr ? 1'000'000 : 2'000;
}

/// Returns the resident memory of this process in MiB.
inline double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// Calls `run(random)` for each case. The generator of case i has the seed test_seed() + i, so that
/// `TESSERA_TEST_SEED=seed+i TESSERA_FUZZ_CASES=1` repeats it. Expects that no case takes more than a second of the
/// processor (ten with sanitizers, which make allocations many times slower), and that the resident memory grows by
/// less than 64 MiB after the first tenth of the cases; sanitizers keep freed memory, so it is not limited with them.
template <class Run>
void run_fuzz_cases(const Run& run) {
  const std::uint64_t count = fuzz_cases(), part = std::max<std::uint64_t>(count / 10, 1);
  double slowest = 0, memory = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = test_seed() + i;
    std::mt19937_64 random(seed);
    const std::clock_t start = std::clock();
    try {
      run(random);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "TESSERA_TEST_SEED=" << seed << ": " << e.what();
    }
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, sanitized ? 10 : 1) << "TESSERA_TEST_SEED=" << seed;
    slowest = std::max(slowest, seconds);
    if (i == part) memory = resident_mib();
    if (count > 10'000 && i % part == part - 1) {
      std::printf("%llu cases, slowest %.3f s, %.0f MiB\n", static_cast<unsigned long long>(i + 1), slowest,
                  resident_mib());
      std::fflush(stdout);
    }
    if (testing::Test::HasFailure()) return;
  }
  if (!sanitized) {
    EXPECT_LT(resident_mib(), memory + 64);
  }
}

}  // namespace tessera::test
