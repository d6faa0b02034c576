// SPDX-License-Identifier: Apache-2.0
// A file that is read in pieces, from any place: a model of many gigabytes is usable before it is read, and takes no
// memory but the pieces. Part of the operating system's seam: callers see bytes, only input_file.cpp knows the system's
// calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tessera {

/// An open file; closed by the destructor. Movable, not copyable. Reading is safe from any number of threads. The file
/// may be replaced or removed meanwhile: what was opened is read. If it is shortened, reading what is lost is an error.
class InputFile {
 public:
  /// Opens `path`. ArgumentError: missing, a directory or another thing that is not a file, not readable; FormatError:
  /// empty; DeviceError: the system failed to read it.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  /// In bytes, when it was opened.
  std::uint64_t size() const { return size_; }
  /// Reads the bytes from `offset` on into all of `to`. FormatError, naming the file and where it ends now, if they are
  /// not all there; DeviceError: the system failed to read them.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  void close() noexcept;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tessera
