// SPDX-License-Identifier: Apache-2.0
// Converts a metadata entry in tests/data/architectures.json to a GGUF value.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/llm/gguf_types.h"
#include "tessera/llm/gguf_values.h"

namespace tessera::test {

inline GgufValue value_of(const std::string& type, const nlohmann::json& value) {
  if (type == "string") return value.get<std::string>();
  if (type == "uint32") return value.get<std::uint32_t>();
  if (type == "float32") return value.get<float>();
  if (type == "bool") return value.get<bool>();
  if (type == "array int32") return GgufArray{value.get<std::vector<std::int32_t>>()};
  if (type == "array bool") return GgufArray{value.get<std::vector<bool>>()};
  throw std::logic_error("unknown type in architectures.json: " + type);
}

}  // namespace tessera::test
