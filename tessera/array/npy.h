// SPDX-License-Identifier: Apache-2.0
// NumPy's files: .npy with one array (numpy.lib.format, versions 1.0 to 3.0), and .npz with several, which is a zip
// archive of .npy files (PKWARE's APPNOTE.TXT 6.3.10).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

namespace detail {
class NpySource;
}

/// A .npy file whose header has been parsed. Elements are read on demand, so the file may be larger than memory.
/// Several threads can read the same object.
class NpyFile {
 public:
  /// Opens `path` and parses its header: little-endian numbers or bool, in C or Fortran order. Throws what InputFile
  /// throws, and FormatError with the offset and the field if the file is invalid.
  static NpyFile open(const std::string& path);
  explicit NpyFile(detail::NpySource source);  ///< Internal.
  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&& other) noexcept;
  ~NpyFile();

  const std::string& name() const;  ///< The name of the file, for messages.
  DType dtype() const;              ///< The type of the elements.
  const Shape& shape() const;       ///< The extents.

  /// Loads all elements to `device` (default: current_device()). Throws FormatError if the file has become shorter.
  Array load(std::optional<Device> device = {}) const;
  /// Loads a part: `extents` elements from the position `begin`, both with one number per axis. Reads only this part.
  /// Throws ShapeError if the part is not inside the array.
  Array load(const Shape& begin, const Shape& extents, std::optional<Device> device = {}) const;
  /// Returns an array of cpu:0 in memory that the system reads from the file when it is first used (mmap). Writes
  /// change the array, and not the file. The file must not become shorter while the array exists: using it would then
  /// end the program. Throws ArgumentError if the file cannot be mapped: an array in an archive, or elements that are
  /// not aligned. Arrays of bool are loaded, because each element has to be checked.
  Array map() const;

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

/// Loads the arrays of a .npz file to `device` (default: current_device()), by name without ".npy". Compressed archives
/// need zlib, which is opened at run time (libz.so.1). Throws what InputFile throws; FormatError with the position if
/// the archive or an array in it is invalid, a checksum differs, or the archive contains something else than arrays;
/// and DeviceError if zlib is missing.
std::map<std::string, Array> load_npz(const std::string& path, std::optional<Device> device = {});

/// Writes a .npz file with these arrays, in this order. The same arrays give the same bytes. If `compress` is true,
/// each array is compressed (deflate), which needs zlib. Throws ArgumentError if a name is empty or occurs twice, and
/// the errors of save_npy; DeviceError if zlib is missing.
void save_npz(const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays, bool compress = false);

}  // namespace tessera
