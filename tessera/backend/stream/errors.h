// SPDX-License-Identifier: Apache-2.0
// Maps driver error codes to exceptions. CUDA and HIP use the same codes. Other APIs override Api::fault_of.
#pragma once

#include <string>

#include "tessera/backend/stream/api.h"

namespace tessera::stream {

inline constexpr Code success = 0, out_of_memory = 2, deinitialized = 4, no_device = 100, invalid_image = 200,
                      invalid_context = 201, no_binary_for_device = 209, invalid_ptx = 218, unsupported_ptx = 222,
                      not_ready = 600, launch_out_of_resources = 701, peer_already_enabled = 704;

/// Throws unless `code` is success. Throws OutOfMemory if memory ran out, KernelError if the driver rejected the call,
/// and DeviceLost otherwise. DeviceLost marks the device as lost. `doing` describes the call ("copying to the device").
/// `subject` is the device or kernel ("cuda:0", "kernel softmax").
void check(const Api& api, Code code, const char* doing, const std::string& subject);

}  // namespace tessera::stream
