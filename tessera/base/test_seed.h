// SPDX-License-Identifier: Apache-2.0
// The seed from which all tests in a process generate their data. It is in base/ so that tests of every layer, and
// users' tests with tessera/testing/testing.h, can use it.
#pragma once

#include <cstdint>

namespace tessera {

/// Returns the value of TESSERA_TEST_SEED, else a random seed. The first call prints the seed on standard error. Throws
/// ArgumentError if the variable is not a 64-bit unsigned integer. Thread-safe.
std::uint64_t test_seed();

}  // namespace tessera
