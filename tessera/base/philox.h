// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based random number generator: the n-th number of a stream is a function of the seed and n.
// Results do not depend on the processor or the order of evaluation, so parallel sampling is reproducible.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Returns four random 32-bit words for a counter and a key. Source: Salmon, Moraes, Dror, Shaw, "Parallel random
/// numbers: as easy as 1, 2, 3" (SC 2011), Philox4x32 with ten rounds. Results are identical to those of Random123;
/// sampler_test.cpp contains its test vectors.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;  // the constants of the Weyl sequence are the golden ratio and sqrt(3) - 1
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Returns the four words at position `index` of the stream with this seed.
constexpr PhiloxCounter philox4x32(std::uint64_t seed, std::uint64_t index) {
  return philox4x32(PhiloxCounter{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0},
                    PhiloxKey{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

/// Returns a double in [0, 1) from two words. The result has 53 random bits, and its possible values are evenly spaced.
constexpr double philox_uniform(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace tessera
