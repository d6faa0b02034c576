// SPDX-License-Identifier: Apache-2.0
// Files that are read whole and replaced whole, so that no reader ever sees half of one.
// Part of the operating system's seam.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::os {

/// Why this user should not go by what a file says: "it belongs to another user (number 1000)", "it is not a regular
/// file". Nothing for a regular file, or a link to one, that belongs to this user or to root, and for one that is not
/// there.
std::optional<std::string> why_not_trusted(const std::filesystem::path& file);

/// The text of a trusted file; nothing if there is no such file. ArgumentError, with the system's words or the above,
/// if it cannot be read, is not trusted or is larger than `limit` bytes. Never waits, also if it is a pipe.
std::optional<std::string> read_trusted_text(const std::filesystem::path& file, std::size_t limit);

/// Puts `text` in the file's place in one step: written beside it under another name, flushed to the disk, renamed.
/// Keeps the permissions of the file that was there; makes missing folders; a symbolic link stays one, its target is
/// replaced. ArgumentError with the system's words if that cannot be done, or if what is there is no regular file; it
/// is then as it was.
void replace_text(const std::filesystem::path& file, std::string_view text);
/// The same wherever it can be done. Appends to what is no file, like a pipe or /dev/stdout, and writes in place into a
/// file beside which no other can be made, or that no other can replace (mounted by itself, or another user's in a
/// shared folder): if that fails midway, the old content is lost. A file that may not be written is not replaced
/// either. Where the program's own output goes to a file, flush it before, and write nothing to it later: that would go
/// over it.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace tessera::os
