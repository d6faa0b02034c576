// SPDX-License-Identifier: Apache-2.0
// The one seed from which all tests of a process draw their data. It stands this low so that tests of every layer have
// it, and those that users write with tessera/testing/testing.h as well.
#pragma once

#include <cstdint>

namespace tessera {

/// TESSERA_TEST_SEED, else drawn again; printed on standard error when first asked for. ArgumentError if the variable
/// holds no number of at most 64 bits. From any thread.
std::uint64_t test_seed();

}  // namespace tessera
