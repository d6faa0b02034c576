// SPDX-License-Identifier: Apache-2.0
// Reader for GGUF files, versions 2 and 3: metadata as typed values, tensors read on demand. Every length, count and
// offset is checked against the file; invalid ones throw FormatError with offset and field.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/owner.h"
#include "tessera/llm/gguf_types.h"

namespace tessera {

/// `T` is one of `Choices`.
template <class T, class... Choices>
concept OneOf = (std::same_as<T, Choices> || ...);

/// Types that `GgufFile::get` can return: integers (from any integer type, if the value fits), floating point (from f32
/// or f64), bool and std::string.
template <class T>
concept GgufGettable = OneOf<T, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                             std::uint64_t, std::int64_t, float, double, bool, std::string>;

/// A parsed GGUF file. Safe to read from several threads.
///
/// In addition to the format's specification, the data of tensors must be contiguous and in the order of their
/// descriptions, as ggml requires and all known writers do.
class GgufFile {
 public:
  /// Opens and parses `path`. If a model is split into several files (NAME-00001-of-00003.gguf), `path` must be the
  /// first, and the others must be in the same folder; their tensors become tensors of this file. Throws the errors of
  /// InputFile, and FormatError, which names missing parts, and part 1 if another part is given.
  static GgufFile open(const std::string& path);
  /// Parses `bytes`, which must outlive the result; `name` is used in messages. Throws FormatError, also for a part of
  /// a split model.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  GgufFile(GgufFile&& other) noexcept;
  GgufFile& operator=(GgufFile&& other) noexcept;
  ~GgufFile();

  const std::string& name() const;
  /// The file that contains the tensor's data; differs from `name()` if the model is split.
  const std::string& name(const GgufTensor& tensor) const;
  /// The version of the format, 2 or 3.
  std::uint32_t version() const;
  /// Alignment of tensors in the data section, in bytes: a power of two, by default 32.
  std::uint64_t alignment() const;
  /// Offset of the data section, in bytes from the start of the file.
  std::uint64_t data_offset() const;

  /// All metadata, in the order of the file (gguf_values.h).
  std::span<const GgufEntry> metadata() const;
  /// Returns the value of `key`, or null.
  const GgufValue* find(std::string_view key) const;
  /// True if the key exists.
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// Returns the value of `key`. Throws FormatError if the key is missing, has another type, or the number does not
  /// fit.
  template <GgufGettable T>
  T get(std::string_view key) const {
    T out{};
    convert(entry(key), out);
    return out;
  }
  /// Like get, but returns nothing if the key is missing; a wrong type is still an error.
  template <GgufGettable T>
  std::optional<T> find_as(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    return get<T>(key);
  }
  /// Like get, but returns `otherwise` if the key is missing; a wrong type is still an error.
  template <GgufGettable T>
  T get_or(std::string_view key, T otherwise) const {
    return has(key) ? get<T>(key) : std::move(otherwise);
  }
  /// Returns the elements of an array, converted as by `get`. Throws FormatError as `get` does.
  template <GgufGettable T>
  std::vector<T> get_array(std::string_view key) const {
    std::vector<T> out;
    convert(entry(key), out);
    return out;
  }
  /// Returns an array of strings without copying. Throws FormatError as `get` does.
  const std::vector<std::string>& get_strings(std::string_view key) const;

  /// All tensors, in the order of the file.
  std::span<const GgufTensor> tensors() const;
  /// Returns the tensor with this name, or null.
  const GgufTensor* find_tensor(std::string_view name) const;
  /// Returns the tensor with this name. Throws FormatError if there is none.
  const GgufTensor& tensor(std::string_view name) const;
  /// Reads `to.size()` bytes of the tensor's data from byte `offset`. Throws ArgumentError if the range is not inside a
  /// tensor of this file, and the errors of InputFile::read, because a file may be truncated while it is in use.
  void read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const;
  /// Reads all data of the tensor. Throws the errors of `read`.
  std::vector<std::byte> data(const GgufTensor& tensor) const;
  /// Throws FormatError with tensor and type if Tessera cannot compute with the tensor's type.
  void require_supported(const GgufTensor& tensor) const;

 private:
  friend class GgufParser;
  struct Contents;  // gguf_contents.h
  GgufFile();
  static GgufFile open_one(const std::string& path);
  // Throws FormatError unless this is a whole model or its first part.
  void check_split(bool in_memory) const;
  void join_parts();
  const GgufEntry& entry(std::string_view key) const;
  // Defined in the source file for all target types, to keep the conversions out of this header.
  template <class T>
  void convert(const GgufEntry& entry, T& out) const;

  Owner<Contents> contents_;
};

}  // namespace tessera
