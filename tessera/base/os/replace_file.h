// SPDX-License-Identifier: Apache-2.0
// Small text files that are read whole and replaced whole, so that no reader ever sees half of one.
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
/// False where the file is there and may not be written, or no other beside it.
bool replaceable(const std::filesystem::path& file);

}  // namespace tessera::os
