// SPDX-License-Identifier: Apache-2.0
// The contents of a GGUF file or of a model folder. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/os/input_file.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {

/// Supplies the data of tensors that are not stored as in GGUF files.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Fills `to` with the bytes of tensor `index` from byte `offset`. The caller has checked the range. Thread-safe.
  virtual void read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) const = 0;
  /// Returns the file of tensor `index` and its name there, for messages.
  virtual const std::string& origin(std::size_t index) const = 0;
};

struct GgufFile::Contents {
  struct Part {
    std::string name;
    InputFile file;
    std::uint64_t size = 0, data_offset = 0;
  };
  std::string name;
  std::optional<InputFile> file;               ///< the file, unless `parse` was called
  std::span<const std::byte> bytes;            ///< the bytes that were passed to `parse`
  std::vector<Part> parts;                     ///< the parts of a split model, starting with the second one
  std::unique_ptr<const TensorSource> source;  ///< set if the model is a folder
  std::uint64_t size = 0;
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::uint64_t data_offset = 0;
  std::vector<GgufEntry> entries;
  std::vector<GgufTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> entry_index;
  std::map<std::string, std::size_t, std::less<>> tensor_index;
};

}  // namespace tessera
