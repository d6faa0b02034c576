// SPDX-License-Identifier: Apache-2.0
// Random-access reading of large files: a model of many gigabytes can be used before it is read, and only the pieces
// that are read take memory. Operating system layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera {

/// An open file; closed by the destructor. Movable, not copyable. Concurrent reads are safe. If the file is replaced or
/// deleted, reads still see the opened file; if it is truncated, reading the lost part throws.
class InputFile {
 public:
  /// Opens `path`. Throws ArgumentError if it is missing, not readable or not a regular file, FormatError if it is
  /// empty, and DeviceError if the system failed to read it.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  /// Size in bytes when the file was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `to` with the bytes starting at `offset`. Throws FormatError, with the file and its current size, if it ends
  /// before, and DeviceError if the system failed to read it.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  void close() noexcept;
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tessera
