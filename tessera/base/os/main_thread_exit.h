// SPDX-License-Identifier: Apache-2.0
// Callbacks at the earliest point of process exit. Operating system layer.
#pragma once

namespace tessera::os {

/// Calls `function` when the main thread ends, because main returned or called exit (or pthread_exit, which leaves
/// other threads running). It runs after the thread's thread_local objects are destroyed and before all atexit handlers
/// and destructors of static objects, including those registered after this call. Functions run in reverse order;
/// registering one twice has no effect. Not called if another thread calls exit, nor in a child forked by another
/// thread: register an atexit handler as well.
void at_main_thread_exit(void (*function)()) noexcept;

}  // namespace tessera::os
