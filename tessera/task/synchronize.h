// SPDX-License-Identifier: Apache-2.0
// Waits for all tasks and all work on devices.
#pragma once

#include "tessera/task/scope.h"

namespace tessera {

// Each function waits until the tasks outside of regions on its devices have ended (running some of them on the calling
// thread), and until the default queues of these devices have completed their work. Throws TaskError with the first
// error that has not been thrown yet, and all others in TaskError::others, once. Throws Error if called in a task,
// which would wait for itself.
void synchronize();                    ///< all devices that have tasks or are open
void synchronize(Backend backend);     ///< one backend's devices; does nothing if it has none
void synchronize(const Scope& scope);  ///< these devices

}  // namespace tessera
