// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/process_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace tessera::os {

// flock() excludes other descriptors of the same file, and each process has its own file here.
ProcessLock::ProcessLock() : file_(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC)) {
  while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) {}
}

ProcessLock::~ProcessLock() {
  if (file_ < 0) return;
  ::flock(file_, LOCK_UN);  // a child of fork() may hold the descriptor, too
  ::close(file_);
}

}  // namespace tessera::os
