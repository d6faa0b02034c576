// SPDX-License-Identifier: Apache-2.0
// A program run in a child process for its answer, within a time limit. What a driver does to the process that loads it
// (a crash, an exit, a call that never returns) is then an outcome and no more.
#pragma once

#include <chrono>
#include <span>
#include <string>

namespace tessera::os {

/// The descriptor on which a child of `run_child` answers. Its standard output and error are both kept as its words, so
/// that a driver that prints does not disturb the answer.
inline constexpr int answer_descriptor = 3;

struct ChildOutcome {
  enum class End : unsigned char {
    not_started,  ///< `reason` says why
    exited,       ///< `code` is its exit code; -1 if another part of this program waited for it first
    signalled,    ///< `code` is the signal
    timed_out     ///< killed at the limit
  };
  End end = End::not_started;
  int code = 0;
  std::string answer;  ///< all that it wrote on the answer's descriptor
  std::string words;   ///< the end of what it wrote on standard output and standard error
  std::string reason;
};

/// Starts `command` (a path, then arguments) with this process's environment, no standard input and no open files of
/// this process; gives back when it has ended, and has been waited for. Does not throw.
ChildOutcome run_child(std::span<const std::string> command, std::chrono::milliseconds limit);

/// "SIGSEGV".
std::string signal_name(int signal);

/// Of this process.
int process_number();
/// For the child: leaves no core file, and ends when its parent (the process of this number) does.
void live_as_child(int parent);
/// For the child: writes all of it; false if nobody reads.
bool write_answer(int descriptor, std::string_view text);
/// Ends the process at once: no handler of a driver's runs.
[[noreturn]] void leave(int code);

}  // namespace tessera::os
