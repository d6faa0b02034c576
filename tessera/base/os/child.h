// SPDX-License-Identifier: Apache-2.0
// Runs a program in a child process within a time limit. If a driver crashes, exits or hangs, only the child is
// affected, and the result reports it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::os {

/// The file descriptor on which a child of `run_child` answers. Its standard output and error are captured separately
/// as `words`, so that a driver's output does not corrupt the answer.
inline constexpr int answer_descriptor = 3;

struct ChildOutcome {
  enum class End : unsigned char {
    not_started,      ///< see `reason`
    exited,           ///< `code` is its exit code; -1 if unknown
    signalled,        ///< `code` is the signal
    timed_out,        ///< killed at the time limit
    too_much_memory,  ///< killed for exceeding the memory limit
    too_much_answer   ///< killed for exceeding the answer's size limit
  };
  End end = End::not_started;
  int code = 0;
  bool unwatched = false;  ///< its guard was killed, for example by a driver that signals its parent
  std::string answer;      ///< everything it wrote to the answer descriptor
  std::string words;       ///< the end of its standard output and standard error
  std::string reason;
};

struct ChildLimits {
  std::chrono::milliseconds time;
  std::uint64_t memory = 0;  ///< limit of the resident bytes of the process tree; 0: no limit
  std::size_t answer = std::size_t{16} << 20;
};

/// Runs `command` (a path and arguments) with one extra argument that the program passes to `become_supervised_child`.
/// The child inherits the environment, but no standard input and no open files. Returns when the child and all
/// processes that it started have ended. Does not throw.
ChildOutcome run_child(std::span<const std::string> command, const ChildLimits& limits);

/// The name of a signal: "SIGSEGV".
std::string signal_name(int signal);

/// Prefix of the argument that `run_child` adds.
inline constexpr std::string_view child_option = "--answer=";
/// Called first by the child; `argument` is the text after `child_option`. Forks: one process continues with the work,
/// and its parent watches the whole process tree, terminates it and reports its exit status. Signals sent to its
/// process group or parent therefore do not reach the calling program. Disables core files; ends when the calling
/// program ends.
void become_supervised_child(std::string_view argument);
/// Called by the child: writes all of `text`. Returns false if the reader has closed the pipe.
bool write_answer(int descriptor, std::string_view text);
/// Exits immediately, without running the exit handlers that drivers registered.
[[noreturn]] void leave(int code);

}  // namespace tessera::os
