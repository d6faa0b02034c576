// SPDX-License-Identifier: Apache-2.0
// Properties of the running task. Throw Error outside of a task.
#pragma once

#include <string>

#include "tessera/device/device.h"

namespace tessera {

class Queue;

namespace this_task {

/// True if the calling thread is running a task.
bool exists() noexcept;
/// The device that the task runs for, which is the current device.
Device device();
/// The queue for the arrays, kernels and copies of this task.
Queue& queue();
std::string name();  ///< The task's name, for messages.
/// True if the task or its region was cancelled.
bool stop_requested();

}  // namespace this_task
}  // namespace tessera
