// SPDX-License-Identifier: Apache-2.0
// Safetensors files (github.com/huggingface/safetensors, "Format"): arrays by name, and texts about them. A length of 8
// bytes, a header in JSON, the elements in C order, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/os/input_file.h"

namespace tessera {

/// The longest header that the format allows, in bytes.
inline constexpr std::uint64_t most_safetensors_header = 100'000'000;

/// What a file says of one tensor.
struct SafetensorsTensor {
  std::string name;                     ///< The tensor's name.
  std::string dtype_name;               ///< as in the file: "F32"
  std::optional<DType> dtype;           ///< nothing: a dtype that Tessera has not, as F8_E4M3
  Shape shape;                          ///< The tensor's extents.
  std::uint64_t offset = 0, bytes = 0;  ///< of its elements, from the start of the file
  std::uint64_t described_at = 0;       ///< where the header tells of it, from the start of the file
};

/// A file whose header has been read; elements are read when they are asked for, so that a file may be larger than
/// memory. Reading is safe from any number of threads.
class SafetensorsFile {
 public:
  /// Opens `path` and reads its header. Errors of InputFile. FormatError, with offset and field, for whatever is not as
  /// the format says: a header that is too long, is not JSON or holds anything else than tensors and texts; names that
  /// occur twice; shapes of more than 2^48 elements; elements that are of another number than the shape says, overlap,
  /// leave gaps, or do not end where the file does. Tensors may lie in another order than the header tells of them.
  static SafetensorsFile open(const std::filesystem::path& path);
  /// The same of bytes that outlive the result; `name` stands for the file in messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string name);

  /// The name of the file, for messages.
  const std::string& name() const { return name_; }
  /// All tensors, in the order of the header.
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  /// The tensor of this name, or null.
  const SafetensorsTensor* find(std::string_view name) const;
  /// The same. FormatError: there is none.
  const SafetensorsTensor& tensor(std::string_view name) const;
  /// The texts about the file ("__metadata__").
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The elements of one tensor on `device` (current_device() unless said). FormatError: there is no such tensor;
  /// Tessera has not its dtype; the file has been shortened meanwhile.
  Array load(std::string_view name, std::optional<Device> device = {}) const;
  /// Its elements as they are in the file, `tensor.bytes` of them. ArgumentError if it is not of this file.
  std::vector<std::byte> data(const SafetensorsTensor& tensor) const;

 private:
  friend class SafetensorsHeader;
  SafetensorsFile() = default;
  [[noreturn]] void bad(std::uint64_t offset, const std::string& field, const std::string& wrong) const;
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  void read_header();

  std::string name_;
  std::optional<InputFile> file_;     ///< or else
  std::span<const std::byte> bytes_;  ///< what was given to `parse`
  std::uint64_t size_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file with these arrays, which the header lists in this order, and texts. Elements lie with the larger
/// dtypes first, so that all are aligned. The file is put in the old one's place as save_npy does, with its errors.
/// ArgumentError: a name occurs twice, is "__metadata__" or is not UTF-8; or the header would be longer than the format
/// allows.
void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
