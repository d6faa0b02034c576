// SPDX-License-Identifier: Apache-2.0
// A folder of its own for what PoCL compiles in this process: including this header is enough, as long as it is before
// the first look at OpenCL.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/folder.h"

namespace tessera::test {

/// PoCL would keep compiled kernels in the user's home, and a warm cache would hide faults of compiling.
class FreshCache : public ::testing::Environment {
 public:
  FreshCache() { setenv("POCL_CACHE_DIR", folder_.path().c_str(), 1); }

 private:
  const Folder folder_;
};
inline const auto* fresh_cache = ::testing::AddGlobalTestEnvironment(new FreshCache);

}  // namespace tessera::test
