// SPDX-License-Identifier: Apache-2.0
// Waiting for all tasks and all work of devices.
#pragma once

#include "tessera/task/scope.h"

namespace tessera {

// Each waits until the plain tasks (those of no region) of its devices have ended, running some of them meanwhile, and
// then until those devices have done what their default queues hold. Throws the first error of those tasks that
// was not thrown yet, with all the others (TaskError::others), once. In a task it is an Error that names it, since it
// would wait for itself.
void synchronize();                    ///< of every device that has tasks or is open
void synchronize(Backend backend);     ///< of one backend's devices: nothing, where it has none
void synchronize(const Scope& scope);  ///< of these

}  // namespace tessera
