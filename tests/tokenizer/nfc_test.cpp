// SPDX-License-Identifier: Apache-2.0
// Normalization form C: examples of Unicode Standard Annex 15, and all characters compared with Python's unicodedata.
#include "tessera/llm/nfc.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tessera/base/unicode.h"

namespace tessera {
namespace {

TEST(Nfc, CombinesReordersAndReplaces) {
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain \u00e9\n", "plain \u00e9\n"},
      {"e\u0301", "\u00e9"},
      {"a\u0307\u0323", "\u1ea1\u0307"},                         // marks are sorted by class before they are combined
      {"a\u0301\u0327", "\u00e1\u0327"},                         // the cedilla does not prevent it: other class
      {"a\u05ae\u0300\u0301b", "\u00e0\u05ae\u0301b"},           // a mark of the same class does
      {"\u212b\u2126", "\u00c5\u03a9"},                          // singletons
      {"\u0958", "\u0915\u093c"},                                // excluded from composition
      {"\u1e9b\u0323", "\u1e9b\u0323"},                          // compatibility characters are kept
      {"\u1112\u1161\u11ab\u1100\u1173\u11af", "\ud55c\uae00"},  // Hangul
      {"\ud558\u11ab", "\ud55c"},
      {"\u0301e", "\u0301e"},
      {std::string("e\xff") + "\u0301", std::string("e\xff") + "\u0301"}};  // invalid bytes are kept
  for (const auto& [text, expected] : cases) EXPECT_EQ(to_nfc(text), expected) << text;
}

std::uint32_t crc_of(std::string_view text) {
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

/// The figures are those that tools/make_nfc_tables.py prints.
TEST(Nfc, AllCharactersAreThoseOfUnicodeData) {
  std::string lines, together, reversed;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    if (code > 0) lines += '\n';
    append_utf8(lines, code), append_utf8(together, code);
  }
  for (char32_t code = 0x110000; code-- > 0;)
    if (code < 0xd800 || code >= 0xe000) append_utf8(reversed, code);
  EXPECT_EQ(crc_of(to_nfc(lines)), 0xa2d04104u);
  EXPECT_EQ(crc_of(to_nfc(together)), 0x6fa6b37fu);
  EXPECT_EQ(crc_of(to_nfc(reversed)), 0x9c76f005u);
}

}  // namespace
}  // namespace tessera
