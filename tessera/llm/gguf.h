// SPDX-License-Identifier: Apache-2.0
// Reader for GGUF files, versions 2 and 3, and for model folders of the Hugging Face hub, which have the same
// interface. Metadata is parsed into typed values, and tensors are read on demand. The reader checks every length,
// count and offset against the file and throws FormatError with the offset and the field if one is invalid.
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

namespace hub {
class Folder;
}

/// `T` is one of `Choices`.
template <class T, class... Choices>
concept OneOf = (std::same_as<T, Choices> || ...);

/// Types that `GgufFile::get` can return: integers, float, double, bool and std::string. An integer can be read from
/// any integer type if the value fits, and a floating-point number from f32 or f64.
template <class T>
concept GgufGettable = OneOf<T, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                             std::uint64_t, std::int64_t, float, double, bool, std::string>;

/// A parsed GGUF file, or a model folder in the same form. Safe to read from several threads.
///
/// The data of the tensors must be contiguous and in the order of their descriptions. The specification does not
/// require this, but ggml does, and all known writers comply.
class GgufFile {
 public:
  /// Opens and parses `path`. If a model is split into several files (NAME-00001-of-00003.gguf), `path` must be part 1,
  /// and the other parts must be in the same folder. The result contains the tensors of all parts.
  ///
  /// `path` can also be a folder as downloaded from the Hugging Face hub, with config.json, safetensors files and
  /// tokenizer.json. The result then has the metadata and tensors that llama.cpp's converter would write. Tensors are
  /// converted while they are read. `weights` is the type of matrices (one of quantizable_types(); default: as in the
  /// files). Matrices whose rows are no whole blocks get type_for_rows(), or stay as they are.
  ///
  /// Throws the errors of InputFile. Throws FormatError if a file is invalid, parts are missing, or `path` is not part
  /// 1; the message lists the missing parts or the path of part 1. Throws FormatError if the model of a folder is not
  /// supported. Throws ArgumentError if `weights` has another type, or if `path` is a file and `weights` is given.
  static GgufFile open(const std::string& path, std::optional<GgmlType> weights = {});
  /// Parses `bytes`, which must outlive the result. Messages use `name` as the file name. Throws FormatError if the
  /// file is invalid or a part of a split model.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  GgufFile(GgufFile&& other) noexcept;
  GgufFile& operator=(GgufFile&& other) noexcept;
  ~GgufFile();

  const std::string& name() const;
  /// The name of the file that contains the tensor's data. If the model is split, this name may differ from `name()`.
  const std::string& name(const GgufTensor& tensor) const;
  /// The version of the format, 2 or 3. 0 for a folder.
  std::uint32_t version() const;
  /// Alignment of tensors in the data section, in bytes. A power of two; the default is 32.
  std::uint64_t alignment() const;
  /// Offset of the data section in the file, in bytes.
  std::uint64_t data_offset() const;

  /// All metadata, in the order of the file (gguf_values.h).
  std::span<const GgufEntry> metadata() const;
  /// Returns the value of `key`, or null.
  const GgufValue* find(std::string_view key) const;
  /// True if the key exists.
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// Replaces the value of `key`, or adds the key, as if the file contained it.
  void set_metadata(std::string key, GgufValue value);
  /// Removes the key, as if the file did not contain it.
  void remove_metadata(std::string_view key);

  /// Returns the value of `key`. Throws FormatError if the key is missing, the value has another type, or the number
  /// does not fit in `T`.
  template <GgufGettable T>
  T get(std::string_view key) const {
    T out{};
    convert(entry(key), out);
    return out;
  }
  /// Like get, but returns std::nullopt if the key is missing. Still throws if the type is wrong.
  template <GgufGettable T>
  std::optional<T> find_as(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    return get<T>(key);
  }
  /// Like get, but returns `otherwise` if the key is missing. Still throws if the type is wrong.
  template <GgufGettable T>
  T get_or(std::string_view key, T otherwise) const {
    return has(key) ? get<T>(key) : std::move(otherwise);
  }
  /// Returns the elements of an array. The conversions and errors are the same as for `get`.
  template <GgufGettable T>
  std::vector<T> get_array(std::string_view key) const {
    std::vector<T> out;
    convert(entry(key), out);
    return out;
  }
  /// Returns an array of strings without copying it. Throws FormatError if the key is missing or has another type.
  const std::vector<std::string>& get_strings(std::string_view key) const;

  /// All tensors, in the order of the file.
  std::span<const GgufTensor> tensors() const;
  /// Returns the tensor with this name, or null.
  const GgufTensor* find_tensor(std::string_view name) const;
  /// Returns the tensor with this name. Throws FormatError if there is none.
  const GgufTensor& tensor(std::string_view name) const;
  /// Reads `to.size()` bytes of the tensor's data, starting at byte `offset`. Throws ArgumentError if the range is not
  /// inside a tensor of this file. Throws the errors of InputFile::read, because another program may truncate the file
  /// while it is open.
  void read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const;
  /// Reads all data of the tensor. Throws the errors of `read`.
  std::vector<std::byte> data(const GgufTensor& tensor) const;
  /// Throws FormatError if Tessera cannot compute with the tensor's type.
  void require_supported(const GgufTensor& tensor) const;

 private:
  friend class GgufParser;
  friend class hub::Folder;
  struct Contents;  // gguf_contents.h
  GgufFile();
  static GgufFile open_one(const std::string& path);
  // Throws FormatError unless this is a complete model or part 1 of a split model.
  void check_split(bool in_memory) const;
  void join_parts();
  const GgufEntry& entry(std::string_view key) const;
  // Instantiated in gguf.cpp for all types that `get` supports.
  template <class T>
  void convert(const GgufEntry& entry, T& out) const;

  detail::Owner<Contents> contents_;
};

}  // namespace tessera
