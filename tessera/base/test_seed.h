// SPDX-License-Identifier: Apache-2.0
// The seed from which all tests of a process generate their data. It is in base/ so that the tests of every layer, and
// users' tests with tessera/testing/testing.h, can use it.
#pragma once

#include <cstdint>

namespace tessera {

/// The value of TESSERA_TEST_SEED, else a new random seed. Printed on standard error at the first call. Throws
/// ArgumentError if the variable is not a 64-bit unsigned integer. Thread-safe.
std::uint64_t test_seed();

}  // namespace tessera
