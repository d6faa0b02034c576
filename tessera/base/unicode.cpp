// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/unicode.h"

#include <utility>

namespace tessera {

Utf8Unit utf8_unit(std::string_view text) {
  using Kind = Utf8Unit::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Kind::character, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {Kind::invalid, 1};
  const std::size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF.
  unsigned low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  char32_t code = lead & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {Kind::partial, i};
    if (byte(i) < low || byte(i) > high) return {Kind::invalid, i};
    code = code << 6 | (byte(i) & 0x3fu);
    low = 0x80;
    high = 0xbf;
  }
  return {Kind::character, size, code};
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr unsigned lead[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(lead[tail] | code >> (6 * tail));
  for (int i = tail - 1; i >= 0; --i) out += static_cast<char>(0x80u | (code >> (6 * i) & 0x3fu));
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string all = std::exchange(pending_, {});
  all += bytes;
  std::string out;
  out.reserve(all.size());
  for (std::string_view rest = all; !rest.empty();) {
    const Utf8Unit unit = utf8_unit(rest);
    if (unit.kind == Utf8Unit::Kind::partial) {
      pending_ = rest;
      break;
    }
    if (unit.kind == Utf8Unit::Kind::invalid && invalid_ == Invalid::replace)
      append_utf8(out, 0xfffd);
    else
      out += rest.substr(0, unit.size);
    rest.remove_prefix(unit.size);
  }
  return out;
}

std::string Utf8Stream::flush() {
  std::string out = std::exchange(pending_, {});
  if (!out.empty() && invalid_ == Invalid::replace) {
    out.clear();
    append_utf8(out, 0xfffd);
  }
  return out;
}

}  // namespace tessera
