// SPDX-License-Identifier: Apache-2.0
// Opens dynamic libraries at run time, so that drivers and the code generator need not be linked. Libraries are never
// closed: drivers start threads and register handlers that must stay loaded.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace tessera::os {

/// A loaded library, or the reason why loading failed. Copies refer to the same library; destroying them closes
/// nothing.
class Library {
 public:
  Library() = default;
  /// Opens the first of `names` (file names or paths) that the loader finds, with local symbol visibility. Does not
  /// throw: check `loaded()`.
  static Library open(std::span<const std::string> names);
  static Library open(const std::string& name) { return open(std::span(&name, 1)); }

  bool loaded() const { return handle_ != nullptr; }
  const std::string& file() const { return file_; }      ///< the name that was opened, or the last one tried
  const std::string& reason() const { return reason_; }  ///< the loader's message for each name, if none was opened
  /// The missing dependency ("libimf.so") if that is why loading failed; else empty.
  const std::string& missing() const { return missing_; }
  /// The address of a symbol; null if the library does not define it.
  void* symbol(const char* name) const;
  /// The symbol as a function: `library.function<int(int)>("abs")`.
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* handle_ = nullptr;
  std::string file_, reason_, missing_;
};

/// The file of the library or program that contains this address; empty if unknown.
std::filesystem::path file_of(const void* address);
/// Identifies the build of the library or program that contains this address: the linker's build id (NT_GNU_BUILD_ID)
/// of the loaded image, else a hash of the file's path, size, time and inode.
std::string build_id(const void* address);
/// The folder of `libtessera` (or of the program that contains it), where its modules are searched.
std::filesystem::path own_folder();

}  // namespace tessera::os
