// SPDX-License-Identifier: Apache-2.0
// The contents of a safetensors file. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/array/safetensors.h"
#include "tessera/base/os/input_file.h"

namespace tessera {

struct SafetensorsFile::Contents {
  std::string name;
  std::optional<InputFile> file;     ///< set if there is no `bytes`
  std::span<const std::byte> bytes;  ///< the argument of `parse`
  std::uint64_t size = 0;
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> index;
  std::map<std::string, std::string> metadata;
};

}  // namespace tessera
