// SPDX-License-Identifier: Apache-2.0
// Waits for all tasks and all other work on devices.
#pragma once

#include "tessera/task/scope.h"

namespace tessera {

// Each function waits until tasks outside of regions have ended on these devices, and until the default queues of the
// devices have completed their work. The calling thread runs some of the tasks. Throws TaskError with the first error
// that has not been thrown before; TaskError::others contains the remaining errors. Each error is thrown only once.
// Throws Error if called in a task, because the task would wait for itself.
void synchronize();                    ///< Waits for all devices that have tasks or are open.
void synchronize(Backend backend);     ///< Waits for the devices of a backend. Does nothing if it has none.
void synchronize(const Scope& scope);  ///< Waits for the devices of a scope.

}  // namespace tessera
