// SPDX-License-Identifier: Apache-2.0
// Opens dynamic libraries at run time, so that drivers and the code generator need not be linked. Libraries are never
// closed, because drivers start threads and register handlers that run code of the library.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace tessera::os {

/// A loaded library, or the reason why loading failed. Copies refer to the same library. Destroying them does not close
/// it.
class Library {
 public:
  Library() = default;
  /// Opens the first of `names` (file names or paths) that the loader finds. Its symbols are not visible to other
  /// libraries. Does not throw; check `loaded()`.
  static Library open(std::span<const std::string> names);
  static Library open(const std::string& name) { return open(std::span(&name, 1)); }

  /// Returns the first of `names` that is already loaded in this process. Loads nothing.
  static Library find_loaded(std::span<const std::string> names);
  /// Returns the program and the libraries that it is linked with, as one library.
  static Library of_program();

  bool loaded() const { return handle_ != nullptr; }
  /// The name that was opened, or the last one tried.
  const std::string& file() const { return file_; }
  /// The loader's message for each name, if no library was opened.
  const std::string& reason() const { return reason_; }
  /// If loading failed because a dependency is missing, returns the dependency ("libimf.so"), else an empty string.
  const std::string& missing() const { return missing_; }
  /// Returns the address of a symbol; null if the library does not define it.
  void* symbol(const char* name) const;
  /// Returns a symbol as a function: `library.function<int(int)>("abs")`.
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* handle_ = nullptr;
  std::string file_, reason_, missing_;
};

/// Returns the file of the library or program that contains this address; empty if unknown.
std::filesystem::path file_of(const void* address);
/// Returns an id for the build of the library or program that contains this address. This is the linker's build id
/// (NT_GNU_BUILD_ID) of the loaded image, else a hash of the file's path, size, time and inode.
std::string build_id(const void* address);
/// Returns the resident pages of the library's code and constants to the system, which reads them from the file again
/// if they are used. Breakpoints of a debugger in the library are lost.
void release_code_pages(const void* address) noexcept;
/// Returns the folder of `libtessera`, or of the program that contains it. Modules are searched there.
std::filesystem::path own_folder();

}  // namespace tessera::os
