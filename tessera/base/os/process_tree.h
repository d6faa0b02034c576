// SPDX-License-Identifier: Apache-2.0
// Information about processes from /proc: descendants, start times, memory. Without /proc, results are empty.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
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
/// Watches for the end of a process that need not be a child.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  /// Watches nothing if the process does not exist, or has another start time.
  ProcessWatch(pid_t process, std::uint64_t start);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&& other) noexcept;
  /// Returns whether the process has ended, even if its parent has not waited for it. False if it is not watched.
  bool has_ended() const;

 private:
  int descriptor_ = -1;
};
/// Returns the resident memory in bytes; 0 if the process has ended.
std::uint64_t resident_bytes(pid_t process);

/// Returns the program files of the parent process, its parent and so on, at most `count`. Ends at the first process
/// whose program this user may not see.
std::vector<std::filesystem::path> ancestor_programs(int count);

}  // namespace tessera::os
