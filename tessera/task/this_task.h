// SPDX-License-Identifier: Apache-2.0
// What a function may ask about the task that it runs in. Outside of one: Error.
#pragma once

#include <string>

#include "tessera/device/device.h"

namespace tessera {

class Queue;

namespace this_task {

/// Whether the calling thread runs one.
bool exists() noexcept;
/// The device that it runs for, which is current in it.
Device device();
/// The queue into which arrays, kernels and copies of this task go.
Queue& queue();
std::string name();  ///< The task's name, for people.
/// Whether somebody has cancelled it, or the region that it is in.
bool stop_requested();

}  // namespace this_task
}  // namespace tessera
