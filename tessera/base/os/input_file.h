// SPDX-License-Identifier: Apache-2.0
// Random-access reading of large files. A model of many gigabytes can be opened without reading it, and only the parts
// that are read use memory. Operating system layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tessera {

/// An open file. It is closed by the destructor. Movable, not copyable. Concurrent reads are safe. If the file is
/// replaced or deleted, reads still return the data of the opened file. If it is truncated, reading beyond the new end
/// throws.
class InputFile {
 public:
  /// Opens `path`. Throws ArgumentError if the file does not exist, is not readable or is not a regular file. Throws
  /// FormatError if the file is empty, and DeviceError if the system fails to read it.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  /// Size in bytes when the file was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `to` with the bytes starting at `offset`. Throws FormatError with the path and the current size if the file
  /// is too short. Throws DeviceError if the system fails to read it.
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  /// Maps the whole file into memory, privately: writes to the memory do not change the file. The mapping exists until
  /// the last copy of the pointer is destroyed, also without this object. Throws DeviceError if the system cannot map
  /// it.
  std::shared_ptr<void> map() const;

 private:
  void close() noexcept;
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tessera
