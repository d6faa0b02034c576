// SPDX-License-Identifier: Apache-2.0
// What is known of processes: which of them one has started, whether one still is there, what it takes. Read from
// /proc: without it nothing is known of any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::os {

/// This process.
pid_t own_process();
/// Children, their children and so on, as they are now.
std::vector<pid_t> descendants_of(pid_t process);
/// Processes of this user whose environment has this entry ("NAME=value").
std::vector<pid_t> processes_with(std::string_view variable);
/// When it was started, in the kernel's ticks since the machine was: with it a number names one process. 0 if it is
/// gone.
std::uint64_t start_of(pid_t process);
/// Bytes in the machine's memory; 0 if the process is gone.
std::uint64_t resident_bytes(pid_t process);

}  // namespace tessera::os
