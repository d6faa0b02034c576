// SPDX-License-Identifier: Apache-2.0
// Finds libraries: those that the loader would find, and those in vendor locations (toolkit folders, Python packages).
// Only checks whether files exist; does not open them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::os {

/// Returns the file that the loader would open for a name. Searches LD_LIBRARY_PATH, the folder of Tessera's library,
/// ldconfig's cache and the default folders. For a path, only checks that it exists. If a macOS framework has no
/// library file, returns its folder. Returns an empty string if nothing is found. (`cache` is for tests.)
std::string loader_file(const std::string& name, const std::filesystem::path& cache = "/etc/ld.so.cache");

/// Returns a library file for each existing folder, in order. This is the file named `stem` ("libx.so") with the
/// shortest version suffix ("libx.so.3"), and the newest one if there are several. If there is none, it is `stem`
/// itself. Returns full paths.
std::vector<std::string> library_files(std::span<const std::filesystem::path> folders, std::string_view stem);

/// Returns the folders in `parent` with names that start with `prefix`, extended by `below`, highest version first. For
/// example, ("/usr/local", "cuda", "lib64") returns /usr/local/cuda/lib64 and /usr/local/cuda-13.0/lib64.
std::vector<std::filesystem::path> folders_named(const std::filesystem::path& parent, std::string_view prefix,
                                                 const std::filesystem::path& below = {});

/// Returns Python's package folders: those of the active virtual environment (VIRTUAL_ENV, CONDA_PREFIX), of the user
/// and of the system.
std::vector<std::filesystem::path> python_packages();

/// Returns the `lib` folders of Python packages by NVIDIA and others. For example, {"nvidia"} returns
/// .../site-packages/nvidia/*/lib.
std::vector<std::filesystem::path> python_library_folders(std::string_view package);

}  // namespace tessera::os
