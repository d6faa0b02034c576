// SPDX-License-Identifier: Apache-2.0
// An OpenCL driver that fails when its platforms are queried. The kind of failure is selected at build time.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::int32_t platforms(std::uint32_t, void**, std::uint32_t* count) {
#if defined(TESSERA_FAKE_ICD_crashes)
  std::fprintf(stderr, "fake platform: this kernel module is too old\n");
  std::abort();
#elif defined(TESSERA_FAKE_ICD_hangs)
  for (;;) pause();
#endif
  if (count != nullptr) *count = 0;
  return -1001;  // CL_PLATFORM_NOT_FOUND_KHR
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* clGetExtensionFunctionAddress(const char* name) {
  return std::strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? reinterpret_cast<void*>(platforms) : nullptr;
}
