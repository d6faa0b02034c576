// SPDX-License-Identifier: Apache-2.0
// Text that came from outside (a driver's names, a compiler's log) as text that can be shown: it moves no cursor, sets
// no title, and is valid in JSON. And counts in sentences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// False for controls (C0, DEL, C1), separators of lines, and what changes the direction of writing.
bool is_printable(std::uint32_t code);

/// The longest name that is taken as it is, in bytes.
inline constexpr std::size_t longest_name = 256;

/// A name on one line: valid UTF-8 (what is not becomes U+FFFD) without control characters, marks of direction or line
/// separators (a run of these is one space), nothing before and after it, and no longer than `longest_name` (the end is
/// then "..."). Applied twice it gives the same: what a probe made printable is what the program makes of it.
std::string printable_name(std::string_view text);
/// The same without a limit: paths, keys and values of files.
std::string printable_line(std::string_view text);
/// The same for text of several lines: line breaks and tabs stay, and nothing is shortened.
std::string printable_text(std::string_view text);

/// "1 token", "2 tokens".
template <class Count>
std::string count_noun(Count count, std::string_view what) {
  return std::to_string(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

}  // namespace tessera
