// SPDX-License-Identifier: Apache-2.0
// The guard is a process between a child of `run_child` and the program. It watches the child, kills its descendants
// and reports its exit status. Internal to base/os.
#pragma once

#include <chrono>
#include <string>

namespace tessera::os {

/// The file descriptor to which the guard writes its report. The worker does not inherit it.
inline constexpr int guard_descriptor = 4;
/// How long the guard tries to kill processes that do not exit.
inline constexpr std::chrono::milliseconds guard_patience{2000};

struct GuardReport {
  enum class Kind : unsigned char { none, not_started, exited, signalled, stopped, too_much_memory } kind = Kind::none;
  int code = -1;  ///< exit code, signal number or errno
};
std::string text_of(const GuardReport& report);
/// Parses a report. Returns `Kind::none` if the text is not a report.
GuardReport read_report(const std::string& text);

}  // namespace tessera::os
