// SPDX-License-Identifier: Apache-2.0
// The normaliser of a SentencePiece model (Kudo and Richardson 2018), compiled to a table of replacements. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/llm/gguf.h"

namespace tessera {

/// A trie of texts that are replaced. It is a double array in the format of Darts-clone
/// (https://github.com/s-yata/darts-clone, include/darts.h): a node is the position of its children, and the child of
/// byte c is unit `node ^ c`, whose label is c.
class CharsMap {
 public:
  CharsMap() = default;  ///< Replaces nothing.
  /// Reads an array of bytes: the size of the double array (u32, little endian), the array, and the replacements, each
  /// of which ends with a zero. Throws FormatError if a unit refers to a place outside of the table.
  CharsMap(const GgufFile& file, std::string_view key);

  /// Returns the length of the longest beginning of `text` that is replaced, and its replacement. The length is 0 if
  /// nothing is replaced.
  std::pair<std::size_t, std::string_view> longest_match(std::string_view text) const;

 private:
  /// Returns the unit of the child, or 0 if there is none.
  std::uint32_t child(std::size_t node, std::uint8_t byte) const;
  /// Returns why the table cannot be used, or an empty text.
  std::string find_error() const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace tessera
