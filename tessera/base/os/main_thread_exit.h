// SPDX-License-Identifier: Apache-2.0
// The earliest moment of a process's end. Part of the operating system's seam.
#pragma once

namespace tessera::os {

/// Calls `function` when the program's first thread ends, because main returned or it called exit (or pthread_exit,
/// which leaves other threads running without what the function ended): after that thread's
/// thread_local objects are destroyed, and before every handler at exit and every static object's destructor, those of
/// libraries that were loaded, and of objects that were made, after this call included. Functions are called in reverse
/// order; one that was passed before is not added again. Not called if another thread calls exit, nor in a child that
/// another thread forked: have an atexit handler too.
void at_main_thread_exit(void (*function)()) noexcept;

}  // namespace tessera::os
