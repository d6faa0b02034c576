// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/stream/errors.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"

namespace tessera::stream {

namespace {

// Values of CUresult (cuda.h, CUDA 11 to 13) and hipError_t (hip_runtime_api.h, ROCm 5 to 7). All other codes mark the
// device as lost, because losing a device is better than returning wrong results.
constexpr std::array memory_codes = {out_of_memory, 1052 /* hipErrorRuntimeMemory */};
constexpr std::array refused_codes = {
    1,                        // invalid value
    9,                        // invalid configuration (HIP)
    12,  13,  17,  21,  98,   // invalid pitch, symbol, device pointer, direction or device function (HIP)
    200, 209, 218,            // invalid image, no binary for the device, invalid PTX
    221, 222, 223, 224,       // no PTX compiler, unsupported PTX version, JIT disabled, unsupported affinity
    300, 301, 302,            // invalid source, file or symbol not found
    400, 401, 500,            // invalid handle, illegal state, name not found
    701, 703, 704, 705, 708,  // launch needs too many resources, wrong texturing, peer access, primary context
    711, 712, 713, 720,       // too many peers, host memory registered or not registered, cooperative launch too large
    800, 801,                 // not permitted, not supported
    900, 901, 902, 903, 904, 905, 906, 907, 908, 909, 910, 911, 912, 914, 915  // errors of stream capture and graphs
};

}  // namespace

Fault fault_of(Code code) {
  if (code == success || code == not_ready) return Fault::none;
  if (std::ranges::find(memory_codes, code) != memory_codes.end()) return Fault::memory;
  if (std::ranges::find(refused_codes, code) != refused_codes.end()) return Fault::refused;
  return Fault::lost;
}

void check(const Api& api, Code code, const char* doing, const std::string& subject) {
  if (code == success) return;
  const std::string wrong = std::string(doing) + ": the driver returned " + api.code_text(code);
  switch (api.fault_of(code)) {
    case Fault::memory:
      fail<OutOfMemory>({.operation = subject, .wrong = wrong, .remedy = "Free arrays, or work on smaller pieces"});
    case Fault::refused:
    case Fault::none:
      fail<KernelError>(
          {.operation = subject, .wrong = wrong, .remedy = "The driver rejected this call; the device remains usable"});
    case Fault::lost: break;
  }
  fail<DeviceLost>(
      {.operation = subject,
       .wrong = wrong,
       .remedy =
           "Other devices remain usable; use this one in a new process. Run with TESSERA_SYNC=1 to find the kernel or "
           "copy that failed"});
}

}  // namespace tessera::stream
