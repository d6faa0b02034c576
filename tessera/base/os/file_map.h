// SPDX-License-Identifier: Apache-2.0
// A file mapped into memory for reading, so that a model of many gigabytes is usable before it is read.
// Part of the operating system's seam: callers see bytes, only file_map.cpp knows the system's calls.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace tessera {

/// A read-only mapping of a whole file; unmapped by the destructor. Movable, not copyable. Reading the bytes is safe
/// from any number of threads. If another process shortens the file meanwhile, touching the lost pages kills this
/// process (SIGBUS), as for every program that maps files: do not write to model files that are in use.
class FileMap {
 public:
  /// Maps `path`. ArgumentError: missing, a directory or another thing that is not a file, not readable;
  /// FormatError: empty; OutOfMemory: no address space left; DeviceError: the system failed to read it.
  explicit FileMap(const std::filesystem::path& path);
  ~FileMap();
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;

  /// The file's bytes, valid until this object is destroyed or assigned to; starts at a page boundary.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void unmap() noexcept;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tessera
