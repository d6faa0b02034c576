// SPDX-License-Identifier: Apache-2.0
// Information about processes from /proc: descendants, start times, memory. Without /proc, results are empty.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::os {

/// This process.
pid_t own_process();
/// All descendants: children, their children and so on.
std::vector<pid_t> descendants_of(pid_t process);
/// Processes of this user whose environment contains this entry ("NAME=value").
std::vector<pid_t> processes_with(std::string_view variable);
/// The start time in clock ticks since boot; pid and start time together identify a process. 0 if it has ended.
std::uint64_t start_of(pid_t process);
/// Resident memory in bytes; 0 if the process has ended.
std::uint64_t resident_bytes(pid_t process);

}  // namespace tessera::os
