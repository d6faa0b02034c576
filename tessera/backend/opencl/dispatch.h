// SPDX-License-Identifier: Apache-2.0
// OpenCL functions that call the driver of their first argument. Every OpenCL object starts with a pointer to its
// driver's dispatch table. The extension cl_khr_icd defines the order of this table. Used only in this folder.
#pragma once

#include <cstddef>

#include "tessera/backend/opencl/api.h"

namespace tessera::cl {

/// Indices in a driver's dispatch table.
struct DispatchSlots {
  static constexpr std::size_t get_platform_info = 1, get_devices = 2, get_device_info = 3, create_context = 4,
                               create_queue = 9, release_queue = 11, create_buffer = 14, release_memory = 18,
                               create_program = 26, release_program = 29, build_program = 30, get_build_info = 33,
                               create_kernel = 34, release_kernel = 37, set_argument = 38, get_kernel_group_info = 40,
                               wait_events = 41, get_event_info = 42, release_event = 44, flush = 46, finish = 47,
                               enqueue_read = 48, enqueue_write = 49, enqueue_copy = 50, enqueue_map = 56,
                               enqueue_unmap = 58, enqueue_kernel = 59, enqueue_fill = 102, enqueue_marker = 105,
                               enqueue_barrier = 106;
};

/// Sets all functions of `api` except `get_platforms`.
void fill_by_dispatch(Api& api);

}  // namespace tessera::cl
