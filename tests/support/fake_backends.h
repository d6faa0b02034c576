// SPDX-License-Identifier: Apache-2.0
// Backends that have fake drivers (tests/drivers/), with their files and environment variables. For tests that run on
// each of them.
#pragma once

#include <array>
#include <string>

#include "tessera/base/os/library.h"
#include "tessera/device/device.h"
#include "tests/support/run_in_child.h"

namespace tessera::test {

struct FakeBackend {
  Backend backend;
  const char *driver, *compiler;  ///< "cuda" for libfake_cuda.so
  const char *driver_variable, *compiler_variable;
  const char* missing;      ///< the entry point that is missing in libfake_..._incomplete.so
  const char* no_device;    ///< error of the driver if there is no device
  const char* code_prefix;  ///< prefix of the names of its error codes
};
inline constexpr std::array fake_backends = {
    FakeBackend{Backend::cuda, "cuda", "nvrtc", "TESSERA_CUDA_LIBRARY", "TESSERA_NVRTC_LIBRARY", "cuStreamWaitEvent",
                "CUDA_ERROR_NO_DEVICE (100)", "CUDA_ERROR_"},
    FakeBackend{Backend::rocm, "hip", "hiprtc", "TESSERA_ROCM_LIBRARY", "TESSERA_HIPRTC_LIBRARY",
                "hipModuleLaunchKernel", "hipErrorNoDevice (100)", "hipError"},
    FakeBackend{Backend::oneapi, "ze", "ocloc", "TESSERA_ONEAPI_LIBRARY", "TESSERA_OCLOC_LIBRARY",
                "zeCommandListAppendLaunchKernel", "ZE_RESULT_ERROR_UNINITIALIZED (0x78000001)", "ZE_RESULT_ERROR_"}};

inline const FakeBackend& fake_backend(Backend backend) {
  for (const FakeBackend& f : fake_backends)
    if (f.backend == backend) return f;
  return fake_backends[0];
}
inline std::string fake_library(const std::string& name) {
  return std::string(TESSERA_FAKES "/libfake_") + name + ".so";
}

/// Returns violations of the driver's rules that the fake driver in this file has recorded, one per line.
inline std::string breaches(const std::string& file) {
  char text[4096] = "";
  os::Library::open(file).function<int(char*, std::size_t)>("tessera_fake_breaches")(text, sizeof text);
  return text;
}
/// Returns the violations as a suffix for a result: "BREACH: " and the violations, or an empty string if there are
/// none.
inline std::string breach_lines(const std::string& file) {
  const std::string text = breaches(file);
  return text.empty() ? "" : "\nBREACH: " + text;
}

/// Returns variables that make the library load the fakes, followed by `more`.
inline Variables with_fakes(const Variables& more = {}) {
  // The real BLAS libraries do not work with a fake driver. The probe process only lists devices, because it does not
  // know what the kernels of a fake driver compute.
  Variables all = {{"TESSERA_PROBE", "list"},
                   {"TESSERA_CUBLAS_LIBRARY", fake_library("cublaslt")},
                   {"TESSERA_HIPBLASLT_LIBRARY", fake_library("hipblaslt")},
                   {"TESSERA_ROCBLAS_LIBRARY", fake_library("rocblas")}};
  for (const FakeBackend& f : fake_backends) {
    all.emplace_back(f.driver_variable, fake_library(f.driver));
    all.emplace_back(f.compiler_variable, fake_library(f.compiler));
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace tessera::test
