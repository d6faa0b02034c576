// SPDX-License-Identifier: Apache-2.0
// Interface that fake math libraries (cuBLASLt, rocBLAS) use to queue work on a stream of their fake driver, under the
// same rules as other work. Looked up by name in the driver's library.
#pragma once

#include <cstdint>

namespace tessera::fake {

struct OutsideTouch {
  std::uint64_t address, bytes;
  int write;
};
/// Returns 0, or the error of the stream's device. `run` is called once, when the work runs, with the address of each
/// touched range; never if the work is rejected.
using OutsideSubmit = int(void* stream, const char* what, const OutsideTouch* touches, int count,
                          void (*run)(void* state, void* const* data), void* state);
/// The device of a stream; -1 if the stream is invalid.
using OutsideDevice = int(void* stream);
using OutsideBreach = void(const char* text);

}  // namespace tessera::fake
