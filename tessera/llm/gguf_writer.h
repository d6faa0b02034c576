// SPDX-License-Identifier: Apache-2.0
// Writer for GGUF files, versions 2 and 3, for tests and converters. Collects metadata and tensors, then writes them in
// ggml's layout. Data is kept in memory until it is written, or produced while writing.
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

/// Collects metadata and tensors, and writes them as a GGUF file.
class GgufWriter {
 public:
  /// `version` must be 2 or 3; `alignment` of tensors in bytes must be a power of two (written as "general.alignment"
  /// unless it is 32). Throws ArgumentError otherwise.
  explicit GgufWriter(std::uint32_t version = 3, std::uint32_t alignment = 32);

  /// Adds a metadata entry. Throws ArgumentError if the key is empty, too long, "general.alignment", or already exists.
  GgufWriter& set(std::string key, GgufValue value);
  /// Adds an array of an element type that `GgufArray` supports.
  template <class T>
  GgufWriter& set(std::string key, std::vector<T> values) {
    return set(std::move(key), GgufValue(GgufArray{std::move(values)}));
  }
  /// Adds a tensor; `dims` are in ggml's order (row length first), `data` is copied and must have the exact size.
  /// Throws ArgumentError if the name is empty, longer than 64 bytes or already exists, or if dims and data do not
  /// match the type.
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                         std::span<const std::byte> data);
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, std::span<const float> values) {
    return add_tensor(std::move(name), std::move(dims), GgmlType::f32, std::as_bytes(values));
  }
  /// Adds a tensor whose data is produced by `make` each time the file is written: for files larger than memory.
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                         Callback<void(std::span<std::byte>)> make);

  /// Returns the whole file; the last tensor is padded to the alignment.
  std::vector<std::byte> bytes() const;
  /// Replaces the file atomically: if writing fails, an existing file is unchanged. Throws ArgumentError if the path
  /// cannot be written.
  void write(const std::string& path) const;

 private:
  struct Tensor {
    GgufTensor info;
    std::vector<std::byte> data;
    Callback<void(std::span<std::byte>)> make;  ///< if set, produces the data
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
