// SPDX-License-Identifier: Apache-2.0
// UTF-8 at the level of bytes: finding whole characters, and a stream that never gives out half of one.
// Character classes are not here: patterns are PCRE2's (tokenizer_split.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// What stands at the start of some bytes.
struct Utf8Unit {
  enum class Kind {
    character,  ///< a well-formed character
    invalid,    ///< bytes that begin none, whatever follows
    partial,    ///< the text ends within what may become a character
  };
  Kind kind;
  std::size_t size;   ///< of the character, or of the longest part of one that is there; at least 1
  char32_t code = 0;  ///< the character's code point
};

/// The unit at the start of `text`, which is not empty: well-formed as in Table 3-7 of the Unicode Standard (no
/// overlong forms, no surrogates, nothing above U+10FFFF); a bad sequence is cut as its "maximal subparts".
Utf8Unit utf8_unit(std::string_view text);

/// Appends a code point (below 0x110000, no surrogate) as UTF-8.
void append_utf8(std::string& out, char32_t code);

/// Turns pieces of bytes, as tokens decode to them, into pieces of whole characters: no output ends within a character,
/// so each can be printed as it comes. Bytes that are not UTF-8 become U+FFFD, or pass unchanged if asked.
class Utf8Stream {
 public:
  enum class Invalid { replace, pass };
  explicit Utf8Stream(Invalid invalid = Invalid::replace) : invalid_(invalid) {}

  /// Takes bytes; returns all characters that are now whole. At most three bytes stay behind.
  std::string push(std::string_view bytes);
  /// The end: what stayed behind is given out as invalid bytes are (one U+FFFD, or unchanged). Ready for another text.
  std::string flush();
  /// Bytes that wait for the rest of their character.
  std::size_t pending() const { return pending_.size(); }

 private:
  Invalid invalid_;
  std::string pending_;
};

}  // namespace tessera
