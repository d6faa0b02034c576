// SPDX-License-Identifier: Apache-2.0
// For a process of a test's own (run_in_child.h): what happens where memory is short.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace tessera::test {

/// From here on the process gets so many bytes of addresses more, and then none.
inline void leave_memory(std::uint64_t bytes) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit = {pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace tessera::test
