// SPDX-License-Identifier: Apache-2.0
// Reads text files given to commands.
#pragma once

#include <cstddef>
#include <string>

namespace tessera::app {

inline constexpr std::size_t longest_text = std::size_t{64} << 20;  ///< bytes; a larger prompt fits no context

/// Reads a regular file or, with `pipes`, a pipe to its end, such as `<(command)` in a shell. Throws ArgumentError,
/// with `what`, if it cannot be read, is something else (a directory, a device) or is longer than `longest_text`.
std::string read_text(const std::string& path, const std::string& what, bool pipes = false);
/// Reads standard input, of any kind, likewise.
std::string read_standard_input(const std::string& what);

}  // namespace tessera::app
