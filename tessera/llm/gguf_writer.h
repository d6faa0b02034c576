// SPDX-License-Identifier: Apache-2.0
// A writer of GGUF files, versions 2 and 3: collects metadata and tensors, then lays them out as ggml reads them.
// For models made by hand (tests, converters). Data is held in memory until it is written, or made while it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/llm/gguf_types.h"

namespace tessera {

/// Collects metadata and tensors, and writes them as a GGUF file.
class GgufWriter {
 public:
  /// `version` 2 or 3; `alignment` of tensors in bytes, a power of two; one other than 32 is written as
  /// "general.alignment". ArgumentError otherwise.
  explicit GgufWriter(std::uint32_t version = 3, std::uint32_t alignment = 32);

  /// Adds a metadata entry. ArgumentError: the key is empty, too long, "general.alignment", or there already.
  GgufWriter& set(std::string key, GgufValue value);
  /// Adds an array of anything that `GgufArray` holds.
  template <class T>
  GgufWriter& set(std::string key, std::vector<T> values) {
    return set(std::move(key), GgufValue(GgufArray{std::move(values)}));
  }
  /// Adds a tensor; `dims` in ggml's order (row length first), `data` exactly its bytes, copied.
  /// ArgumentError: a name that is empty, longer than 64 bytes or there already; dims and data that do not fit the
  /// type.
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                         std::span<const std::byte> data);
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, std::span<const float> values) {
    return add_tensor(std::move(name), std::move(dims), GgmlType::f32, std::as_bytes(values));
  }
  /// The same, with data that `make` fills in each time the file is written: for files larger than memory.
  GgufWriter& add_tensor(std::string name, std::vector<std::uint64_t> dims, GgmlType type,
                         std::function<void(std::span<std::byte>)> make);

  /// The whole file, the last tensor padded to the alignment.
  std::vector<std::byte> bytes() const;
  /// Replaces the file in one step: if that fails, a file that was there is as it was. ArgumentError: the path cannot
  /// be written.
  void write(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    GgufTensor info;
    std::vector<std::byte> data;
    std::function<void(std::span<std::byte>)> make;  ///< if set, in place of data
  };
  const GgufTensor& add_info(std::string name, std::vector<std::uint64_t> dims, GgmlType type);
  std::vector<std::byte> head() const;  ///< all before the tensors' data
  template <class Put>
  void put_tensors(const Put& put) const;
  std::uint32_t version_;
  std::uint32_t alignment_;
  std::vector<std::pair<std::string, GgufValue>> entries_;
  std::vector<Tensor> tensors_;
};

}  // namespace tessera
