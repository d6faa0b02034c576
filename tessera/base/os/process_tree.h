// SPDX-License-Identifier: Apache-2.0
// Information about processes from /proc: descendants, start times, memory. Without /proc, results are empty.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::os {

/// Returns the id of this process.
pid_t own_process();
/// Returns all descendants: children, their children and so on.
std::vector<pid_t> descendants_of(pid_t process);
/// Returns the processes of this user that have this entry ("NAME=value") in their environment.
std::vector<pid_t> processes_with(std::string_view variable);
/// Returns the start time in clock ticks since boot, or 0 if the process has ended. A process is identified by its id
/// and start time together.
std::uint64_t start_of(pid_t process);
/// Returns the resident memory in bytes; 0 if the process has ended.
std::uint64_t resident_bytes(pid_t process);

}  // namespace tessera::os
