// SPDX-License-Identifier: Apache-2.0
// Safetensors files: named arrays and metadata (github.com/huggingface/safetensors, "Format"). A file consists of an
// 8-byte length, a JSON header of that length, and the elements in C order, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/owner.h"

namespace tessera {

/// The longest header that the format allows, in bytes.
inline constexpr std::uint64_t most_safetensors_header = 100'000'000;

/// A tensor's entry in the header.
struct SafetensorsTensor {
  std::string name;                     ///< The tensor's name.
  std::string dtype_name;               ///< The dtype as written in the file: "F32".
  std::optional<DType> dtype;           ///< nullopt if Tessera does not support the dtype, such as F8_E4M3.
  Shape shape;                          ///< The tensor's extents.
  std::uint64_t offset = 0, bytes = 0;  ///< The position of its elements from the start of the file, and their size.
  std::uint64_t described_at = 0;       ///< The position of its header entry, from the start of the file.
};

/// A file whose header has been parsed. Elements are read on demand, so the file may be larger than memory. Several
/// threads can read the same object.
class SafetensorsFile {
 public:
  /// Opens `path` and parses its header. Throws what InputFile throws, and FormatError with the offset and the field if
  /// the file violates the format:
  /// - the header is too long, is not JSON, or contains anything except tensors and metadata;
  /// - a name occurs twice, or a shape has more than 2^48 elements;
  /// - the data of a tensor do not match its shape, overlap, leave gaps, or do not end at the end of the file.
  ///
  /// The data may be in a different order than the header's entries.
  static SafetensorsFile open(const std::string& path);
  /// Parses `bytes`, which must outlive the result. `name` is used in messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string name);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  /// The name of the file, for messages.
  const std::string& name() const;
  /// All tensors, in the order of the header.
  std::span<const SafetensorsTensor> tensors() const;
  /// The tensor with this name, or null.
  const SafetensorsTensor* find(std::string_view name) const;
  /// The tensor with this name. Throws FormatError if there is none.
  const SafetensorsTensor& tensor(std::string_view name) const;
  /// The metadata of the file, from the header entry "__metadata__".
  const std::map<std::string, std::string>& metadata() const;

  /// Loads the elements of a tensor to `device` (default: current_device()). Throws FormatError if there is no such
  /// tensor, if its dtype is not supported, or if the file has become shorter since it was opened.
  Array load(std::string_view name, std::optional<Device> device = {}) const;
  /// Returns the raw bytes of a tensor. Throws ArgumentError if the tensor does not belong to this file.
  std::vector<std::byte> data(const SafetensorsTensor& tensor) const;

 private:
  friend class SafetensorsHeader;
  SafetensorsFile();
  [[noreturn]] void bad(std::uint64_t offset, const std::string& field, const std::string& wrong) const;
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  void read_header();

  struct Contents;  // safetensors_contents.h
  detail::Owner<Contents> contents_;
};

/// Writes a file with these arrays and metadata. The header lists the arrays in this order; the data are sorted by
/// descending element size, so that all elements are aligned. The file is replaced in the same way, and with the same
/// errors, as by save_npy. Throws ArgumentError if a name occurs twice, is "__metadata__" or is not UTF-8, or if the
/// header exceeds the format's limit.
void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Array>>& arrays,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
