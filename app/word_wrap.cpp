// SPDX-License-Identifier: Apache-2.0
#include "word_wrap.h"

#include <algorithm>
#include <span>

#include "tessera/base/unicode.h"

namespace tessera::app {
namespace {

constexpr std::size_t tab = 8;

struct CodeRange {
  char32_t first, last;
};

bool is_in(char32_t code, std::span<const CodeRange> ranges) {
  return std::ranges::any_of(ranges, [&](const CodeRange& r) { return r.first <= code && code <= r.last; });
}

}  // namespace

// The ranges are those of the scripts, from EastAsianWidth.txt and DerivedGeneralCategory.txt of Unicode. Terminals
// disagree about single characters.
std::size_t column_width(char32_t code) {
  constexpr CodeRange combining[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},
                                     {0x610, 0x61a},   {0x64b, 0x65f},   {0x200b, 0x200f},
                                     {0x20d0, 0x20f0}, {0xfe00, 0xfe0f}, {0xe0100, 0xe01ef}};
  constexpr CodeRange wide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
                                {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                                {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
  if (is_in(code, combining)) return 0;
  return is_in(code, wide) ? 2 : 1;
}

void WordWrap::end_word(std::size_t width, std::string& out) {
  if (word_.empty()) return;
  if (can_break_ && column_ > 0 && column_ + spaces_width_ + word_width_ > width) {
    out += '\n';
    column_ = 0;
  } else {
    out += spaces_;
    column_ += spaces_width_;
  }
  out += word_;
  column_ += word_width_;
  spaces_.clear(), word_.clear();
  spaces_width_ = word_width_ = 0;
  can_break_ = false;
}

std::string WordWrap::push(std::string_view text, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    const Utf8Unit unit = utf8_unit(text);
    const std::string_view character = text.substr(0, unit.size);
    text.remove_prefix(unit.size);
    if (character == "\n") {
      end_word(width, out);
      out += '\n';
      spaces_.clear();
      spaces_width_ = column_ = 0;
      continue;
    }
    if (character == " " || character == "\t") {
      end_word(width, out);
      spaces_ += character;
      spaces_width_ += character == " " ? 1 : tab - (column_ + spaces_width_) % tab;
      can_break_ = true;
      continue;
    }
    const std::size_t columns = column_width(unit.code);
    if (columns == 2) {
      end_word(width, out);
      can_break_ = true;
    }
    word_ += character;
    word_width_ += columns;
    if (columns == 2) {
      end_word(width, out);
      can_break_ = true;
    } else if (word_width_ >= width) {
      end_word(width, out);
    }
  }
  return out;
}

std::string WordWrap::flush(std::size_t width) {
  std::string out;
  end_word(width, out);
  spaces_.clear();
  spaces_width_ = 0;
  return out;
}

}  // namespace tessera::app
