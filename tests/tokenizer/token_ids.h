// SPDX-License-Identifier: Apache-2.0
// Tokens of tests that compare tokenizers with others: their CRC-32, and their texts in messages.
#pragma once

#include <string>
#include <vector>

#include "tessera/llm/tokenizer.h"

namespace tessera::test {

using Ids = std::vector<TokenId>;

/// CRC-32 of the decimal numbers, separated by spaces.
inline std::uint32_t crc_of(const Ids& ids) {
  std::string text;
  for (const TokenId id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}
/// The text of each token in brackets.
inline std::string shown(const Tokenizer& t, const Ids& ids) {
  std::string out;
  for (const TokenId id : ids) out += "[" + std::string(t.text(id)) + "]";
  return out;
}

}  // namespace tessera::test
