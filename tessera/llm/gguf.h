// SPDX-License-Identifier: Apache-2.0
// The reader of GGUF files, versions 2 and 3: metadata as typed values, tensors read from the file when they are asked
// for. Every length, count and offset is checked against the file; a bad one is a FormatError with offset and field.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/os/input_file.h"
#include "tessera/llm/gguf_types.h"

namespace tessera {

/// One metadata entry, in the order of the file.
struct GgufEntry {
  std::string key;           ///< Its name, such as "general.architecture".
  GgufValue value;           ///< Its value.
  std::uint64_t offset = 0;  ///< of the key, in bytes from the start of the file
};

/// `T` is one of the choices.
template <class T, class... Choices>
concept OneOf = (std::same_as<T, Choices> || ...);

/// What `GgufFile::get` can return: integers (converted from any integer type whose value fits), floating point
/// (converted between f32 and f64), bool and std::string.
template <class T>
concept GgufGettable = OneOf<T, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                             std::uint64_t, std::int64_t, float, double, bool, std::string>;

/// A parsed GGUF file. Reading it is safe from any number of threads.
///
/// Beyond what the format's text demands, tensors' data must follow each other without gaps and in the order of their
/// descriptions, as ggml demands and every known writer does.
class GgufFile {
 public:
  /// Opens and parses `path`. Of a model in several files (NAME-00001-of-00003.gguf) that is the first, and the others
  /// lie beside it: their tensors are this file's. Errors of InputFile, and FormatError; it names parts that are
  /// missing, and part 1 if another is given.
  static GgufFile open(const std::filesystem::path& path);
  /// Parses bytes that outlive the result; `name` stands for the file in messages. FormatError, also of a part of a
  /// model.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  /// The file that has the tensor's data: of a model in several files not always `name()`.
  const std::string& name(const GgufTensor& tensor) const {
    return tensor.part == 0 || tensor.part > parts_.size() ? name_ : parts_[tensor.part - 1].name;
  }
  /// The version of the format, 2 or 3.
  std::uint32_t version() const { return version_; }
  /// Of tensors' offsets in the data section, in bytes: a power of two, 32 unless the file says otherwise.
  std::uint64_t alignment() const { return alignment_; }
  /// Where the data section begins, in bytes from the start of the file.
  std::uint64_t data_offset() const { return data_offset_; }

  /// All metadata, in the order of the file.
  std::span<const GgufEntry> metadata() const { return entries_; }
  /// The value of `key`, or null.
  const GgufValue* find(std::string_view key) const;
  /// True if there is an entry of this key.
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// The value of `key`. FormatError: no such key (named), another type or a number that does not fit (both named).
  template <GgufGettable T>
  T get(std::string_view key) const {
    T out{};
    convert(entry(key), out);
    return out;
  }
  /// The same, or nothing if the key is missing; a wrong type is still an error.
  template <GgufGettable T>
  std::optional<T> find_as(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    return get<T>(key);
  }
  /// The same, or `otherwise` if the key is missing; a wrong type is still an error.
  template <GgufGettable T>
  T get_or(std::string_view key, T otherwise) const {
    return has(key) ? get<T>(key) : std::move(otherwise);
  }
  /// An array's elements, converted as by `get`. FormatError as for `get`, naming the element.
  template <GgufGettable T>
  std::vector<T> get_array(std::string_view key) const {
    std::vector<T> out;
    convert(entry(key), out);
    return out;
  }
  /// An array of strings without a copy. FormatError as for `get`.
  const std::vector<std::string>& get_strings(std::string_view key) const;

  /// All tensors, in the order of the file.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  /// The tensor with this name, or null.
  const GgufTensor* find_tensor(std::string_view name) const;
  /// The tensor with this name. FormatError: there is none.
  const GgufTensor& tensor(std::string_view name) const;
  /// The tensor's data from byte `offset` of it on, into all of `to`. ArgumentError if that is not within a tensor of
  /// this file; errors of InputFile::read: a file may be shortened while it is in use.
  void read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const;
  /// All of the tensor's data. Errors of `read`.
  std::vector<std::byte> data(const GgufTensor& tensor) const;
  /// FormatError naming tensor and type if Tessera does not compute with the tensor's type.
  void require_supported(const GgufTensor& tensor) const;

 private:
  friend class GgufParser;
  struct Part {
    std::string name;
    InputFile file;
    std::uint64_t size = 0, data_offset = 0;
  };
  GgufFile() = default;
  static GgufFile open_one(const std::filesystem::path& path);
  // FormatError unless it is the whole of a model or its first part.
  void check_split(bool in_memory) const;
  void join_parts();
  const GgufEntry& entry(std::string_view key) const;
  // One function for all target types keeps the conversions, and their messages, out of this header.
  template <class T>
  void convert(const GgufEntry& entry, T& out) const;

  std::string name_;
  std::optional<InputFile> file_;     ///< or else
  std::span<const std::byte> bytes_;  ///< what was given to `parse`
  std::vector<Part> parts_;           ///< from the second on
  std::uint64_t size_ = 0;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::uint64_t data_offset_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> entry_index_;
  std::map<std::string, std::size_t, std::less<>> tensor_index_;
};

}  // namespace tessera
