// SPDX-License-Identifier: Apache-2.0
// The contents of a GGUF file. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/os/input_file.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {

struct GgufFile::Contents {
  struct Part {
    std::string name;
    InputFile file;
    std::uint64_t size = 0, data_offset = 0;
  };
  std::string name;
  std::optional<InputFile> file;     ///< the file, unless `parse` was called
  std::span<const std::byte> bytes;  ///< the bytes that were passed to `parse`
  std::vector<Part> parts;           ///< the parts of a split model, starting with the second one
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
