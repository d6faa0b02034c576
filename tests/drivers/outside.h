// SPDX-License-Identifier: Apache-2.0
// Interface that fake math libraries (cuBLASLt, rocBLAS) use to queue work on a stream of their fake driver. The same
// rules apply as for other work. The functions are looked up by name in the driver's library.
#pragma once

#include <cstdint>

namespace tessera::fake {

struct OutsideTouch {
  std::uint64_t address, bytes;
  int write;
};
/// Queues work. Returns 0 or the error of the stream's device. `run` is called once, when the work runs, with the host
/// addresses of all touched ranges. It is not called if the work is rejected.
using OutsideSubmit = int(void* stream, const char* what, const OutsideTouch* touches, int count,
                          void (*run)(void* state, void* const* data), void* state);
/// Returns the device of a stream, or -1 if the stream is invalid.
using OutsideDevice = int(void* stream);
using OutsideBreach = void(const char* text);

}  // namespace tessera::fake
