// SPDX-License-Identifier: Apache-2.0
// This file is also part of the code generation module, which does not use fmt.
#include "tessera/ir/print.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace tessera::ir {

namespace {
// Returns the length of the {} or {:.n} at p and the number of digits. The length is 0 if there is no placeholder.
std::pair<std::size_t, int> placeholder(std::string_view format, std::size_t p) {
  if (format.substr(p, 2) == "{}") return {2, 0};
  if (format.substr(p, 3) != "{:.") return {0, 0};
  int digits = 0;
  std::size_t at = p + 3;
  while (at < format.size() && at < p + 5 && format[at] >= '0' && format[at] <= '9')
    digits = 10 * digits + (format[at++] - '0');
  if (digits < 1 || digits > double_digits || at == format.size() || format[at] != '}') return {0, 0};
  return {at + 1 - p, digits};
}

std::vector<PrintPiece> pieces_of(std::string_view format, bool& stray) {
  stray = false;
  std::vector<PrintPiece> pieces(1);
  for (std::size_t p = 0; p < format.size(); ++p) {
    const char c = format[p];
    if (c != '{' && c != '}') {
      pieces.back().text += c;
    } else if (format.substr(p + 1, 1) == std::string_view(&c, 1)) {
      pieces.back().text += c, ++p;
    } else if (const auto [length, digits] = placeholder(format, p); length != 0) {
      pieces.back().value = true, pieces.back().digits = digits;
      pieces.emplace_back();
      p += length - 1;
    } else {
      pieces.back().text += c;
      stray = true;
    }
  }
  if (!pieces.back().value && pieces.back().text.empty()) pieces.pop_back();
  return pieces;
}
}  // namespace

std::vector<PrintPiece> print_pieces(std::string_view format) {
  bool stray;
  return pieces_of(format, stray);
}
std::string print_mistake(std::string_view format, std::size_t values) {
  bool stray;
  const auto pieces = pieces_of(format, stray);
  if (stray)
    return "print's \"" + std::string(format) + "\" has an unmatched brace or an invalid format (n must be 1 to " +
           std::to_string(double_digits) + ")";
  const auto asked = std::ranges::count(pieces, true, &PrintPiece::value);
  if (static_cast<std::size_t>(asked) == values) return {};
  return "print's \"" + std::string(format) + "\" has " + std::to_string(asked) + " {} and " + std::to_string(values) +
         (values == 1 ? " value" : " values");
}

std::string print_float(double value, int digits) {
  if (std::isnan(value)) return "nan";
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits).ptr;
  return std::string(text.data(), end);
}

}  // namespace tessera::ir
