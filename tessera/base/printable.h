// SPDX-License-Identifier: Apache-2.0
// Sanitises external text (driver names, compiler logs) for display: removes terminal control sequences and makes it
// valid in JSON. Also formats counts with plurals.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// False for control characters (C0, DEL, C1), line separators and bidirectional formatting characters.
bool is_printable(std::uint32_t code);

/// The maximum length of a name in bytes; longer names are truncated.
inline constexpr std::size_t longest_name = 256;

/// Sanitises a name for display on one line. Invalid UTF-8 becomes U+FFFD. A sequence of control characters,
/// bidirectional marks and line separators becomes one space, and is removed at the start and end. Text beyond
/// `longest_name` bytes is replaced by "...". Idempotent: the program does not change names that a probe process has
/// sanitised.
std::string printable_name(std::string_view text);
/// Like `printable_name`, but without a length limit. For paths, and for keys and values in files.
std::string printable_line(std::string_view text);
/// Like `printable_line`, but keeps line breaks and tabs.
std::string printable_text(std::string_view text);

/// Formats a count with its noun: "1 token", "2 tokens".
template <class Count>
std::string count_noun(Count count, std::string_view what) {
  return std::to_string(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

}  // namespace tessera
