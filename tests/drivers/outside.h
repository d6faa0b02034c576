// SPDX-License-Identifier: Apache-2.0
// What a fake library beside a driver (cuBLASLt, rocBLAS) asks of that fake driver: to put its work into a stream,
// under the same rules as everything else there. Found by name in the driver's library.
#pragma once

#include <cstdint>

namespace tessera::fake {

struct OutsideTouch {
  std::uint64_t address, bytes;
  int write;
};
/// 0, or the error of the stream's device. `run` is called once, when its turn has come, with where each touch's bytes
/// are; never if it is refused.
using OutsideSubmit = int(void* stream, const char* what, const OutsideTouch* touches, int count,
                          void (*run)(void* state, void* const* data), void* state);
/// The device of a stream; -1 if it is none.
using OutsideDevice = int(void* stream);
using OutsideBreach = void(const char* text);

}  // namespace tessera::fake
