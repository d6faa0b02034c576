// SPDX-License-Identifier: Apache-2.0
// TESSERA_WATCHDOG=seconds: if no task has ended for so long while some are under way, a warning says what runs and
// what waits for what, and again each time that it takes so long. Internal; without the variable there is none, and no
// thread.
#pragma once

#include <cstdint>

#include "tessera/executor/executor.h"

namespace tessera::detail {

class TaskNode;

namespace watchdog {

/// Starts it if the environment asks for one: true. ArgumentError if what stands there is no number of seconds.
bool start();
// What it is told of tasks while there is one.
void made(const TaskNode& task);
void begins(const TaskNode& task) noexcept;
void function_returned(const TaskNode& task) noexcept;
void ends(const TaskNode& task) noexcept;
void gone(const TaskNode& task) noexcept;
void wait_begins(const executor::Node* by, executor::Node* target, const executor::Group* group) noexcept;
void wait_ends() noexcept;

}  // namespace watchdog
}  // namespace tessera::detail
