// SPDX-License-Identifier: Apache-2.0
// Runs the program with too little address space. It must always end with an error message.
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/app/app_program.h"

namespace tessera::test {
namespace {

using Environment = std::map<std::string, std::string>;

Outcome generate(long kib, Environment environment) {
  environment["TESSERA_THREADS"] = "2";
  return run({"generate", "models/pgdocs-2m-q8_0.gguf", "-p", "The index", "-n", "2", "--temperature", "0", "-q",
              "--device", "cpu"},
             {.environment = environment, .limit = 60, .address_space = kib});
}

void expect_messages(const Environment& environment) {
  // Start with a limit at which the system's loader cannot load the program. Increase it until the program succeeds.
  long least = 8 << 10, most = 48 << 10;
  while (generate(least, environment).code == 127) least += least / 8;
  std::string text;
  for (Outcome o; o.code != 0; most += most / 8) {
    ASSERT_LT(most, 8 << 20) << "it never succeeds";
    o = generate(most, environment);
    text = o.out;
  }
  const int steps = std::getenv("TESSERA_TEST_LONG") ? 200 : 50;
  int passed = 0, refused = 0;
  for (int i = 0; i < steps; ++i) {
    const long kib = least + (most - least) * i / steps;
    const Outcome o = generate(kib, environment);
    // The program did not reach main, because the system's loader or the exception pool of the C++ library had too
    // little memory (see guarantees.md). Once a smaller limit was sufficient to start, this does not happen any more.
    const bool began = passed + refused != 0;
    if (!began && o.code == 127 && o.err.find("loading shared libraries") != o.err.npos) continue;
    if (!began && o.code == 134 && o.err == "terminate called without an active exception\n") continue;
    EXPECT_FALSE(o.late) << kib;
    EXPECT_TRUE(o.code == 0 || o.code == 1) << kib << " KiB: " << o.code << "\n" << o.out << o.err;
    passed += o.code == 0, refused += o.code == 1;
    if (o.code == 0) {
      EXPECT_EQ(o.out, text) << kib;
    }
    if (o.code == 1) {
      EXPECT_NE(o.err.find("tessera: error: "), o.err.npos) << kib << ": " << o.err;
      EXPECT_EQ(o.err.find("quarantined"), o.err.npos) << kib << ": " << o.err;
    }
  }
  std::printf("%ld to %ld KiB: %d passed, %d said why not\n", least, most, passed, refused);
  EXPECT_GT(passed, 0);
  EXPECT_GT(refused, steps / 5);
}

TEST(AddressSpaceLimit, GenerateReportsLackOfAddressSpace) { expect_messages({}); }

TEST(AddressSpaceLimit, GenerateWithCachedKernelsReportsLackOfAddressSpace) {
  const TemporaryFolder folder;
  const Environment environment = {{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", folder / "cache"}};
  ASSERT_EQ(generate(8 << 20, environment).code, 0);  // fills the cache
  expect_messages(environment);
}

}  // namespace
}  // namespace tessera::test
