// SPDX-License-Identifier: Apache-2.0
// Where libraries are: what the loader would find, and where vendors put those that it does not find by itself
// (toolkits' folders, and the packages that Python's installers unpack). Only looks at names; nothing is opened.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::os {

/// The file that the loader would open for a name: in LD_LIBRARY_PATH, beside our own library, in the cache that
/// ldconfig writes, in its default folders. A path is only looked at; where a framework of macOS has no file, its
/// folder stands for it. Empty if there is none. (`cache` is for tests.)
std::string loader_file(const std::string& name, const std::filesystem::path& cache = "/etc/ld.so.cache");

/// "libx.so.3" and the like in each folder that exists, in the order of the folders: of `stem` = "libx.so" the file
/// whose name is the stem with the shortest number behind it, newest first, else the stem itself. Full paths.
std::vector<std::string> library_files(std::span<const std::filesystem::path> folders, std::string_view stem);

/// Folders below `parent` whose names begin with `prefix` (and that go on with `below`), newest number first:
/// ("/usr/local", "cuda", "lib64") gives /usr/local/cuda/lib64, /usr/local/cuda-13.0/lib64.
std::vector<std::filesystem::path> folders_named(const std::filesystem::path& parent, std::string_view prefix,
                                                 const std::filesystem::path& below = {});

/// The folders in which Python keeps packages: of the active virtual environment (VIRTUAL_ENV, CONDA_PREFIX), of the
/// user, and of the system.
std::vector<std::filesystem::path> python_packages();

/// `folder/*/lib` of what NVIDIA and others publish for Python: {"nvidia"} gives .../site-packages/nvidia/*/lib.
std::vector<std::filesystem::path> python_library_folders(std::string_view package);

}  // namespace tessera::os
