// SPDX-License-Identifier: Apache-2.0
// Callbacks at the earliest point of a process's exit. Operating system layer.
#pragma once

namespace tessera::os {

/// Calls `function` when the main thread ends, because main() returned or because it called exit. (After pthread_exit,
/// other threads may still be running.) The call happens after the thread's thread_local objects are destroyed. It
/// happens before all atexit handlers and destructors of static objects, even those registered later. Functions run in
/// reverse order; registering a function twice has no effect. The function is not called if another thread calls exit,
/// nor in a child that another thread forked. Register an atexit handler as well.
void at_main_thread_exit(void (*function)()) noexcept;

}  // namespace tessera::os
