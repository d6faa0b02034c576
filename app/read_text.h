// SPDX-License-Identifier: Apache-2.0
// Reads text files and standard input for commands.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::app {

inline constexpr std::size_t longest_text = std::size_t{64} << 20;  ///< in bytes; longer prompts exceed every context

/// Reads a regular file. With `pipes`, named pipes are accepted, too, such as `<(command)` in a shell. Throws
/// ArgumentError if the file cannot be read, has another type (a directory, a device), or is longer than
/// `longest_text`. Messages call the file `what`.
std::string read_text(const std::string& path, const std::string& what, bool pipes = false);
/// Reads standard input to its end, regardless of its type. Throws the same errors as read_text.
std::string read_standard_input(const std::string& what);

/// Warns if `text` is not UTF-8, with the first byte that is not. Such bytes are passed to the tokenizer as they are.
/// The message calls the text `what`.
void warn_unless_utf8(std::string_view text, const std::string& what);

}  // namespace tessera::app
