// SPDX-License-Identifier: Apache-2.0
// Metadata of GGUF files as variants. Programs that only read values with GgufFile::get need gguf.h alone.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tessera/llm/gguf_types.h"

namespace tessera {

/// An array in the metadata. The alternatives are in the order of `GgufType`, so that `values.index()` is the id of the
/// element type.
struct GgufArray {
  /// The elements as a vector of their C++ type.
  using Values = std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
                              std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
                              std::vector<float>, std::vector<bool>, std::vector<std::string>, std::vector<GgufArray>,
                              std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>>;
  Values values;  ///< The elements.

  /// The type of the elements.
  GgufType element_type() const { return static_cast<GgufType>(values.index()); }
  /// Returns the number of elements.
  std::size_t size() const;
  /// True if types and elements are equal.
  friend bool operator==(const GgufArray& a, const GgufArray& b);
};

/// A metadata entry.
struct GgufEntry {
  std::string key;           ///< Its name, such as "general.architecture".
  GgufValue value;           ///< Its value.
  std::uint64_t offset = 0;  ///< offset of the key in the file, in bytes
};

}  // namespace tessera
