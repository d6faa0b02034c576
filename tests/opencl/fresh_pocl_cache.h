// SPDX-License-Identifier: Apache-2.0
// Sets up a separate PoCL kernel cache for this process. Including this header is sufficient if the program does not
// use OpenCL before main.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/folder.h"

namespace tessera::test {

/// By default, PoCL caches compiled kernels in the user's home folder. Cached kernels would hide compile errors.
class FreshCache : public ::testing::Environment {
 public:
  FreshCache() { setenv("POCL_CACHE_DIR", folder_.path().c_str(), 1); }

 private:
  const Folder folder_;
};
inline const auto* fresh_cache = ::testing::AddGlobalTestEnvironment(new FreshCache);

}  // namespace tessera::test
