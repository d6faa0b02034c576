// SPDX-License-Identifier: Apache-2.0
// The process between a child of `run_child` and the program: it watches over the child, ends what the child leaves
// behind, and reports. Internal to base/os.
#pragma once

#include <chrono>
#include <string>

namespace tessera::os {

/// On which it reports; the child itself does not have it.
inline constexpr int guard_descriptor = 4;
/// How long it tries to end processes that do not die.
inline constexpr std::chrono::milliseconds guard_patience{2000};

struct GuardReport {
  enum class Kind : unsigned char { none, not_started, exited, signalled, stopped, too_much_memory } kind = Kind::none;
  int code = -1;  ///< exit code, signal or errno
};
std::string text_of(const GuardReport& report);
/// `Kind::none` for what is no report.
GuardReport read_report(const std::string& text);

}  // namespace tessera::os
