// SPDX-License-Identifier: Apache-2.0
// A temporary folder for a test, and functions to list folders.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::test {

/// A new folder. The destructor deletes it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = std::filesystem::canonical(name);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::filesystem::path> files() const {
    return {std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()};
  }

 private:
  std::filesystem::path path_;
};

/// Returns the sorted names of a folder's entries.
inline std::vector<std::string> names(const std::filesystem::path& folder) {
  std::vector<std::string> all;
  for (const auto& one : std::filesystem::directory_iterator(folder)) all.push_back(one.path().filename().string());
  std::ranges::sort(all);
  return all;
}

/// Returns the paths of a folder's entries, sorted by name.
inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const std::string& name : names(folder)) files.push_back(folder / name);
  return files;
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace tessera::test
