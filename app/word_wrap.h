// SPDX-License-Identifier: Apache-2.0
// Wraps text between words while it is streamed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::app {

/// Wraps a text that arrives in pieces. A word is held back until its end is known, so that it is never divided. Lines
/// can also break before and after wide characters, such as Chinese ones. Words wider than a line are not wrapped.
class WordWrap {
 public:
  /// Returns the text to print now. `text` is UTF-8 that begins and ends with whole characters, without colour codes.
  /// `width` is the number of columns.
  std::string push(std::string_view text, std::size_t width);
  /// Returns the word that was held back. Spaces at the end are dropped.
  std::string flush(std::size_t width);

 private:
  void end_word(std::size_t width, std::string& out);

  std::string spaces_, word_;  ///< held back
  std::size_t spaces_width_ = 0, word_width_ = 0;
  std::size_t column_ = 0;
  bool can_break_ = false;  ///< true if a line break is allowed before `word_`
};

/// Returns the number of columns of a character on a terminal: 0 for combining characters, 2 for wide ones,
/// otherwise 1.
std::size_t column_width(char32_t code);

}  // namespace tessera::app
