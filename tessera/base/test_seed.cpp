// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/test_seed.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/os/system.h"

namespace tessera {

namespace {

std::uint64_t find_seed() {
  std::uint64_t seed = 0;
  const std::string text = os::environment("TESSERA_TEST_SEED").value_or("");
  if (text.empty()) {
    seed = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) % 1'000'000'007;
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc{} || end != text.data() + text.size())
      fail<ArgumentError>({.operation = "TESSERA_TEST_SEED", .wrong = "the value " + text + " is not a number"});
  }
  std::fprintf(stderr, "Set TESSERA_TEST_SEED=%llu to reproduce this test data\n",
               static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace

std::uint64_t test_seed() {
  static const std::uint64_t value = find_seed();
  return value;
}

}  // namespace tessera
