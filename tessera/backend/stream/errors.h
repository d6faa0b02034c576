// SPDX-License-Identifier: Apache-2.0
// Maps driver error codes to exceptions. CUDA and HIP use the same codes; other APIs override Api::fault_of.
#pragma once

#include <string>

#include "tessera/backend/stream/api.h"

namespace tessera::stream {

inline constexpr Code success = 0, out_of_memory = 2, deinitialized = 4, no_device = 100, invalid_image = 200,
                      invalid_context = 201, no_binary_for_device = 209, invalid_ptx = 218, unsupported_ptx = 222,
                      not_ready = 600, launch_out_of_resources = 701, peer_already_enabled = 704;

/// Throws unless the code is success: OutOfMemory; KernelError if the driver rejected the call; otherwise DeviceLost,
/// after which the device is marked as lost. `doing`: "copying to the device"; `subject`: "cuda:0", "kernel softmax".
void check(const Api& api, Code code, const char* doing, const std::string& subject);

}  // namespace tessera::stream
