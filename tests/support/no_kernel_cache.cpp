// SPDX-License-Identifier: Apache-2.0
// Linked into every test: what a test compiles is compiled, whatever ran before, and nothing of it stays in the cache
// of who runs the tests. Tests of the cache set the variable themselves, and name a folder of their own.
#include <cstdlib>

namespace {
const bool off = ::setenv("TESSERA_KERNEL_CACHE", "0", 0) == 0;
}
