// SPDX-License-Identifier: Apache-2.0
// Files that other processes may read at any time: they see the old content or the new, and nothing between.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera::os {

/// Writes under a temporary name in the same folder, and renames. ArgumentError, with the system's reason, if it
/// cannot; the old file is then untouched and nothing is left.
void write_file_at_once(const std::filesystem::path& file, std::string_view text);

}  // namespace tessera::os
