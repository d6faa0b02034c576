// SPDX-License-Identifier: Apache-2.0
// Finds libraries: those that the loader would find, and those in vendor locations (toolkit folders, Python packages).
// Only checks names; opens nothing.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::os {

/// The file that the loader would open for a name. Searches LD_LIBRARY_PATH, our own library's folder, ldconfig's cache
/// and the default folders. For a path, only checks that it exists; a macOS framework without a file is reported by its
/// folder. Empty if not found. (`cache` is for tests.)
std::string loader_file(const std::string& name, const std::filesystem::path& cache = "/etc/ld.so.cache");

/// For each existing folder, in order: the file named `stem` ("libx.so") plus the shortest version suffix, newest first
/// ("libx.so.3"), else `stem` itself. Returns full paths.
std::vector<std::string> library_files(std::span<const std::filesystem::path> folders, std::string_view stem);

/// Folders in `parent` whose names start with `prefix`, extended by `below`, highest version first: ("/usr/local",
/// "cuda", "lib64") gives /usr/local/cuda/lib64, /usr/local/cuda-13.0/lib64.
std::vector<std::filesystem::path> folders_named(const std::filesystem::path& parent, std::string_view prefix,
                                                 const std::filesystem::path& below = {});

/// Python's package folders: those of the active virtual environment (VIRTUAL_ENV, CONDA_PREFIX), the user and the
/// system.
std::vector<std::filesystem::path> python_packages();

/// The `folder/*/lib` folders of Python packages by NVIDIA and others: {"nvidia"} gives .../site-packages/nvidia/*/lib.
std::vector<std::filesystem::path> python_library_folders(std::string_view package);

}  // namespace tessera::os
