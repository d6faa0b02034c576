// SPDX-License-Identifier: Apache-2.0
// Files that are read whole and replaced whole, so that no reader ever sees half of one.
// Part of the operating system's seam.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::os {

/// The file's text; nothing if there is no such file. ArgumentError with the system's words if it cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& file);

/// Puts `text` in the file's place in one step: written beside it under another name, flushed to the disk, renamed.
/// Keeps the permissions of the file that was there; makes missing folders; a symbolic link stays one, its target is
/// replaced. ArgumentError with the system's words if that cannot be done; the old file is then as it was.
void replace_text(const std::filesystem::path& file, std::string_view text);
/// The same wherever it can be done. Appends to what is no file, like a pipe or /dev/stdout, and writes in place into a
/// file beside which no other can be made, or that no other can replace (mounted by itself, or another user's in a
/// shared folder): if that fails midway, the old content is lost. A file that may not be written is not replaced
/// either. Where the program's own output goes to a file, flush it before, and write nothing to it later: that would go
/// over it.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace tessera::os
