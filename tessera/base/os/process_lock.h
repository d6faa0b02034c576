// SPDX-License-Identifier: Apache-2.0
// A lock that all copies of this library in a process share. Operating system layer.
#pragma once

namespace tessera::os {

/// Excludes other threads of this process, also threads that run another copy of this library: shared libraries that
/// link to it statically have their own mutexes. Has no effect without /proc.
class ProcessLock {
 public:
  ProcessLock();
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

 private:
  int file_;
};

}  // namespace tessera::os
