// SPDX-License-Identifier: Apache-2.0
// Dynamic libraries opened at run time: how Tessera reaches drivers and its own code generator without linking them.
// Libraries are never closed: drivers start threads and register handlers that must stay loaded.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace tessera::os {

/// A library, or why there is none. Copies name the same library; nothing is closed when they go.
class Library {
 public:
  Library() = default;
  /// Opens the first of `names` (file names or paths) that the loader takes; its symbols stay invisible to others.
  /// Does not throw: ask `loaded()`.
  static Library open(std::span<const std::string> names);
  static Library open(const std::string& name) { return open(std::span(&name, 1)); }

  bool loaded() const { return handle_ != nullptr; }
  const std::string& file() const { return file_; }      ///< the name that was opened, or tried last
  const std::string& reason() const { return reason_; }  ///< the loader's text for each name, if none was opened
  /// What the library itself needs and the loader did not find ("libimf.so"), if that is why; else empty.
  const std::string& missing() const { return missing_; }
  /// The address of a symbol; null if the library has none.
  void* symbol(const char* name) const;
  /// As a function: `library.function<int(int)>("abs")`.
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* handle_ = nullptr;
  std::string file_, reason_, missing_;
};

/// The file of the library or program that holds this address; empty if the loader does not know.
std::filesystem::path file_of(const void* address);
/// What tells one build of the library or program that holds this address from any other: the number that its linker
/// gave it (NT_GNU_BUILD_ID), as it is loaded and not as the file is now; else a hash of the file's path, size, time
/// and inode.
std::string build_id(const void* address);
/// Where `libtessera` (or the program that contains it) lies: its own modules are looked for beside it.
std::filesystem::path own_folder();

}  // namespace tessera::os
