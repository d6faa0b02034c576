// SPDX-License-Identifier: Apache-2.0
// Linked into every test. Disables the kernel cache, so that tests always compile and don't write to the user's cache.
// Tests of the cache set the variable and their own folder.
#include <cstdlib>

namespace {
const bool off = ::setenv("TESSERA_KERNEL_CACHE", "0", 0) == 0;
}
