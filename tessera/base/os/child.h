// SPDX-License-Identifier: Apache-2.0
// A program run in a child process for its answer, within a time limit. What a driver does to the process that loads it
// (a crash, an exit, a call that never returns) is then an outcome and no more.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::os {

/// The descriptor on which a child of `run_child` answers. Its standard output and error are both kept as its words, so
/// that a driver that prints does not disturb the answer.
inline constexpr int answer_descriptor = 3;

struct ChildOutcome {
  enum class End : unsigned char {
    not_started,      ///< `reason` says why
    exited,           ///< `code` is its exit code; -1 if nobody can tell
    signalled,        ///< `code` is the signal
    timed_out,        ///< stopped at the limit
    too_much_memory,  ///< stopped, because it took more than it may
    too_much_answer   ///< likewise
  };
  End end = End::not_started;
  int code = 0;
  bool unwatched = false;  ///< its guard was killed, as by a driver that signals its parent
  std::string answer;      ///< all that it wrote on the answer's descriptor
  std::string words;       ///< the end of what it wrote on standard output and standard error
  std::string reason;
};

struct ChildLimits {
  std::chrono::milliseconds time;
  std::uint64_t memory = 0;  ///< bytes that it and the processes that it starts may have resident; 0: no limit
  std::size_t answer = std::size_t{16} << 20;
};

/// Starts `command` (a path, then arguments), with one argument more by which the program calls
/// `become_supervised_child`, with this process's environment, no standard input and no open files of this process.
/// Gives back when it and every process that it started have ended. Does not throw.
ChildOutcome run_child(std::span<const std::string> command, const ChildLimits& limits);

/// "SIGSEGV".
std::string signal_name(int signal);

/// The argument that `run_child` adds begins so.
inline constexpr std::string_view child_option = "--answer=";
/// For the child, before anything else is done: `argument` is what stands behind `child_option`. From here on the
/// process is two: one that goes on with the work, and its parent, which watches over it and over all that it starts,
/// ends them with it, and tells how it ended. So a signal to its group or to its parent does not reach the program that
/// asks. Leaves no core file, and ends when that program does.
void become_supervised_child(std::string_view argument);
/// For the child: writes all of it; false if nobody reads.
bool write_answer(int descriptor, std::string_view text);
/// Ends the process at once: no handler of a driver's runs.
[[noreturn]] void leave(int code);

}  // namespace tessera::os
