// SPDX-License-Identifier: Apache-2.0
// A folder of its own for what PoCL compiles in this process: including this header is enough, as long as it is before
// the first look at OpenCL.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::test {

/// PoCL would keep compiled kernels in the user's home, and a warm cache would hide faults of compiling.
class FreshCache : public ::testing::Environment {
 public:
  FreshCache() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-pocl-XXXXXX").string();
    if (mkdtemp(name.data())) folder_ = name, setenv("POCL_CACHE_DIR", name.c_str(), 1);
  }
  ~FreshCache() override {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::string folder_;
};
inline const auto* fresh_cache = ::testing::AddGlobalTestEnvironment(new FreshCache);

}  // namespace tessera::test
