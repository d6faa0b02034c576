// SPDX-License-Identifier: Apache-2.0
// For a test's child process (run_in_child.h): simulates a shortage of memory.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace tessera::test {

/// Limits the process's address space to its current size plus `bytes`.
inline void leave_memory(std::uint64_t bytes) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit = {pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace tessera::test
