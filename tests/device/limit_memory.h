// SPDX-License-Identifier: Apache-2.0
// Simulates a lack of memory. For child processes of tests (run_in_child.h).
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace tessera::test {

/// Limits the address space of the process to its current size plus `bytes`.
inline void leave_memory(std::uint64_t bytes) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit = {pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace tessera::test
