// SPDX-License-Identifier: Apache-2.0
// Runs a program in a child process with a time limit. If a driver crashes, exits or hangs, only the child is affected,
// and the result describes what happened.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::os {

/// The file descriptor to which a child of `run_child` writes its answer. Standard output and error are captured
/// separately in `words`, so that output of a driver does not corrupt the answer.
inline constexpr int answer_descriptor = 3;

struct ChildOutcome {
  enum class End : unsigned char {
    not_started,      ///< `reason` has the cause
    exited,           ///< `code` is the exit code; -1 if unknown
    signalled,        ///< `code` is the signal
    timed_out,        ///< killed at the time limit
    too_much_memory,  ///< killed because it exceeded the memory limit
    too_much_answer   ///< killed because its answer exceeded the size limit
  };
  End end = End::not_started;
  int code = 0;
  bool unwatched = false;  ///< its guard process was killed, for example by a driver that sends signals to its parent
  std::string answer;      ///< everything it wrote to the answer descriptor
  std::string words;       ///< the end of its standard output and standard error
  std::string reason;
};

struct ChildLimits {
  std::chrono::milliseconds time;
  std::uint64_t memory = 0;  ///< limit for the resident memory of the process tree in bytes; 0: no limit
  std::size_t answer = std::size_t{16} << 20;
};

/// Runs `command` (a path and arguments). Adds an argument that the program must pass to `become_supervised_child`. The
/// child inherits the environment, but neither standard input nor open files. Returns when the child and all processes
/// that it started have ended. Does not throw.
ChildOutcome run_child(std::span<const std::string> command, const ChildLimits& limits);

/// Returns the name of a signal: "SIGSEGV".
std::string signal_name(int signal);

/// Prefix of the argument that `run_child` adds.
inline constexpr std::string_view child_option = "--answer=";
/// Must be called first by the child. `argument` is the text after `child_option`.
/// The function forks. The new process continues with the work. Its parent becomes the guard, which watches the whole
/// process tree, terminates it and reports its exit status. Signals that the worker sends to its process group or its
/// parent therefore do not reach the calling program. Also disables core files. The guard ends when the calling program
/// ends.
void become_supervised_child(std::string_view argument);
/// Writes all of `text` to the calling program. Called by the child. Returns false if the reader has closed the pipe.
bool write_answer(int descriptor, std::string_view text);
/// Exits immediately. Does not run the exit handlers that drivers registered.
[[noreturn]] void leave(int code);

}  // namespace tessera::os
