// SPDX-License-Identifier: Apache-2.0
// Texts that a command is given in files.
#pragma once

#include <cstddef>
#include <string>

namespace tessera::app {

inline constexpr std::size_t longest_text = std::size_t{64} << 20;  ///< bytes; a prompt of that size fits no context

/// The text of a regular file or, with `pipes`, of a pipe until it ends, such as `<(command)` of a shell. ArgumentError
/// names `what` if it cannot be read, is something else (a folder, a device) or is longer than `longest_text`.
std::string read_text(const std::string& path, const std::string& what, bool pipes = false);
/// The same of standard input, whatever that is.
std::string read_standard_input(const std::string& what);

}  // namespace tessera::app
