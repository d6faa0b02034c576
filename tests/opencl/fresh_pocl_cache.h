// SPDX-License-Identifier: Apache-2.0
// Sets up a separate PoCL kernel cache for this process. Including this header is enough, provided that OpenCL is first
// used later.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/folder.h"

namespace tessera::test {

/// By default PoCL keeps compiled kernels in the user's home, and a warm cache would hide compile errors.
class FreshCache : public ::testing::Environment {
 public:
  FreshCache() { setenv("POCL_CACHE_DIR", folder_.path().c_str(), 1); }

 private:
  const Folder folder_;
};
inline const auto* fresh_cache = ::testing::AddGlobalTestEnvironment(new FreshCache);

}  // namespace tessera::test
