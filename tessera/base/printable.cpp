// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/printable.h"

#include <cstddef>
#include <cstdint>

namespace tessera {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  ///< 0 if not valid UTF-8
};

/// Decodes the first character (Unicode Standard, section 3.9, table 3-7: well-formed byte sequences).
Character first(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (lead < 0xc2 || bytes == 0 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

std::string printable(std::string_view text, bool lines) {
  std::string out;
  bool gap = false;  // true if a space must be written for removed control characters
  while (!text.empty()) {
    const Character c = first(text);
    const std::string_view bytes = text.substr(0, c.bytes == 0 ? 1 : c.bytes);
    text.remove_prefix(bytes.size());
    if (c.bytes != 0 && !is_printable(c.code) && !(lines && (c.code == '\n' || c.code == '\t'))) {
      gap = true;
      continue;
    }
    if (gap && !out.empty() && out.back() != ' ' && out.back() != '\n' && bytes != " " && bytes != "\n") out += ' ';
    gap = false;
    out += c.bytes == 0 ? std::string_view("\xef\xbf\xbd") : bytes;
  }
  return out;
}

}  // namespace

bool is_printable(std::uint32_t code) {
  const bool moves = code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
                     code == 0x200e || code == 0x200f || code == 0x061c || (code >= 0x202a && code <= 0x202e) ||
                     (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
  return !moves;
}

std::string printable_line(std::string_view text) {
  const std::string out = printable(text, false);
  const std::size_t begins = out.find_first_not_of(' ');
  return begins == out.npos ? "" : out.substr(begins, out.find_last_not_of(' ') - begins + 1);
}

std::string printable_name(std::string_view text) {
  // Limits the work for very long names. The factor leaves enough text if three bytes become one or if spaces are
  // removed.
  std::string out = printable_line(text.substr(0, 64 * longest_name));
  if (out.size() <= longest_name) return out;
  std::size_t end = longest_name - 3;
  while ((static_cast<unsigned char>(out[end]) & 0xc0) == 0x80) --end;
  return out.substr(0, end) + "...";
}

std::string printable_text(std::string_view text) { return printable(text, true); }

}  // namespace tessera
