// SPDX-License-Identifier: Apache-2.0
// Runs a test in a separate process with or without fake GPUs. Variables select two fake CUDA and two fake ROCm GPUs,
// or none. For tests with drivers/resolver.cpp in their sources (tessera_use_fakes).
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

#include "tests/support/fake_backends.h"

namespace tessera::test {

/// Returns variables with which no driver and no preferences file is found, even if drivers are installed.
inline Variables no_gpus() {
  Variables all = {{"XDG_CONFIG_HOME", "/nonexistent/config"}, {"TESSERA_DEVICE", ""}, {"TESSERA_PROBE", "list"}};
  for (const char* name : {"CUDA", "NVRTC", "ROCM", "HIPRTC", "ONEAPI", "OCLOC", "OPENCL"})
    all.emplace_back(std::string("TESSERA_") + name + "_LIBRARY", "/nonexistent/library.so");
  return all;
}
/// Returns variables that provide cuda:0, cuda:1, rocm:0, rocm:1 and cpu:0.
inline Variables four_gpus(const Variables& more = {}) {
  Variables all = no_gpus();
  const std::string folder = TESSERA_FAKES "/libfake_";
  for (const auto& [name, file] : {std::pair{"CUDA", "cuda"},
                                   {"NVRTC", "nvrtc"},
                                   {"ROCM", "hip"},
                                   {"HIPRTC", "hiprtc"},
                                   {"CUBLAS", "cublaslt"},
                                   {"HIPBLASLT", "hipblaslt"},
                                   {"ROCBLAS", "rocblas"}})
    all.emplace_back(std::string("TESSERA_") + name + "_LIBRARY", folder + file + ".so");
  all.emplace_back("TESSERA_FAKE_DEVICES", "2");
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Checks that no assertion fails in `body` and that it violates no rule of a driver.
inline void in_process(const Variables& variables, const std::function<void()>& body) {
  const std::string said = run_in_child(variables, [&] {
    body();
    std::string text = ::testing::Test::HasFailure() ? "an assertion failed (see above)" : "";
    for (const auto& [name, value] : variables) {
      if ((name != "TESSERA_CUDA_LIBRARY" && name != "TESSERA_ROCM_LIBRARY") || value.find("fake") == std::string::npos)
        continue;
      text += breach_lines(value);
    }
    std::fflush(nullptr);
    return text;
  });
  EXPECT_EQ(said, "");
}

}  // namespace tessera::test
