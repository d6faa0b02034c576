// SPDX-License-Identifier: Apache-2.0
// TESSERA_WATCHDOG=seconds: if tasks are unfinished and none has ended for this time, a warning lists the running and
// waiting tasks. The warning is repeated after each further period. Without the variable, no thread is started.
// Internal.
#pragma once

#include <cstdint>

#include "tessera/executor/executor.h"

namespace tessera::detail {

class TaskNode;

namespace watchdog {

/// Starts the watchdog if the environment variable is set. Returns true if the watchdog runs. Throws ArgumentError if
/// the value is not a number of seconds.
bool start();
// Called for tasks while the watchdog is active.
void made(const TaskNode& task);
void begins(const TaskNode& task) noexcept;
void function_returned(const TaskNode& task) noexcept;
void ends(const TaskNode& task) noexcept;
void gone(const TaskNode& task) noexcept;
void wait_begins(const executor::Node* by, executor::Node* target, const executor::Group* group) noexcept;
void wait_ends() noexcept;

}  // namespace watchdog
}  // namespace tessera::detail
