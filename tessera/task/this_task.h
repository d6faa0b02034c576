// SPDX-License-Identifier: Apache-2.0
// Properties of the running task. Except for exists(), they throw Error outside of a task.
#pragma once

#include <string>

#include "tessera/device/device.h"

namespace tessera {

class Queue;

namespace this_task {

/// True if the calling thread is running a task.
bool exists() noexcept;
/// The device for which the task runs. It is also the current device.
Device device();
/// The queue that this task's array operations, kernels and copies use.
Queue& queue();
std::string name();  ///< The task's name, for messages.
/// True if the task or its region was cancelled.
bool stop_requested();

}  // namespace this_task
}  // namespace tessera
