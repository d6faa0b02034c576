// SPDX-License-Identifier: Apache-2.0
// Writer for GGUF files, versions 2 and 3. It collects metadata and tensors and then writes them in ggml's layout.
// Tensor data is either kept in memory until then or produced by a callback during the write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {

/// Collects metadata and tensors and writes them to a GGUF file.
class GgufWriter {
 public:
  /// `alignment` is the alignment of tensors in bytes. It is written as "general.alignment" unless it is 32. Throws
  /// ArgumentError if `version` is not 2 or 3, or `alignment` is not a power of two.
  explicit GgufWriter(std::uint32_t version = 3, std::uint32_t alignment = 32);

  /// Adds a metadata entry. Throws ArgumentError if the key is empty, longer than 65535 bytes, "general.alignment", or
  /// already exists.
  GgufWriter& set(std::string key, GgufValue value);
  /// Adds an array. `T` must be an element type of `GgufArray`.
  template <class T>
  GgufWriter& set(std::string key, std::vector<T> values) {
    return set(std::move(key), GgufValue(GgufArray{std::move(values)}));
  }
  /// Adds a tensor and copies its data. `dims` are in ggml's order, with the row length first. Throws ArgumentError if
  /// the name is empty, longer than 64 bytes or already exists, if the type does not support the dimensions, or if the
  /// size of `data` is wrong.
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                         std::span<const std::byte> data);
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, std::span<const float> values) {
    return add_tensor(std::move(name), std::move(dims), GgmlType::f32, std::as_bytes(values));
  }
  /// Adds a tensor. `make` is called to produce the data each time the file is written, so that a file may be larger
  /// than memory.
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                         Callback<void(std::span<std::byte>)> make);

  /// Returns the contents of the file. The last tensor is padded to the alignment, too.
  std::vector<std::byte> bytes() const;
  /// Writes the file atomically. If writing fails, an existing file is not changed. Throws ArgumentError if the path
  /// cannot be written.
  void write(const std::string& path) const;

 private:
  struct Tensor {
    GgufTensor info;
    std::vector<std::byte> data;
    Callback<void(std::span<std::byte>)> make;  ///< produces the data; if empty, `data` is used
  };
  const GgufTensor& add_info(std::string name, std::vector<std::uint64_t> dims, GgmlType type);
  std::vector<std::byte> head() const;  ///< everything before the tensors' data
  template <class Put>
  void put_tensors(const Put& put) const;
  std::uint32_t version_;
  std::uint32_t alignment_;
  std::vector<std::pair<std::string, GgufValue>> entries_;
  std::vector<Tensor> tensors_;
};

}  // namespace tessera
