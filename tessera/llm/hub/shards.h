// SPDX-License-Identifier: Apache-2.0
// The safetensors files of a model folder. Internal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/os/input_file.h"
#include "tessera/base/shape.h"

namespace tessera::hub {

/// A tensor in one of the files.
struct StoredTensor {
  std::string name, dtype;
  Shape shape;
  std::size_t shard = 0;                ///< the index of its file
  std::uint64_t offset = 0, bytes = 0;  ///< the position of its data in the file
};

/// All tensors of a folder: of model.safetensors, or of the files that model.safetensors.index.json lists.
class Shards {
 public:
  /// Opens the files and reads their headers. Throws FormatError if a file is missing or invalid, or does not contain a
  /// tensor that the index assigns to it.
  explicit Shards(const std::string& folder);

  /// The tensors, sorted by name.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Returns the tensor with this name, or null.
  const StoredTensor* find(std::string_view name) const;
  const std::string& path(const StoredTensor& tensor) const { return paths_[tensor.shard]; }
  /// Reads data from byte `offset` of a file. Thread-safe. Throws the errors of InputFile::read.
  void read(std::size_t shard, std::uint64_t offset, std::span<std::byte> to) const { files_[shard].read(offset, to); }

 private:
  void add(const std::string& path, const std::vector<std::string>* wanted);
  void add_indexed(const std::string& folder, const std::string& index);

  std::vector<std::string> paths_;
  std::vector<InputFile> files_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace tessera::hub
