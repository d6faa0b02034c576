// SPDX-License-Identifier: Apache-2.0
// UTF-8 at the byte level: finding whole characters, and a stream that never returns a part of a character. Character
// classes are handled by PCRE2 (tokenizer_split.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// The character or invalid sequence at the start of a byte string.
struct Utf8Unit {
  enum class Kind {
    character,  ///< a well-formed character
    invalid,    ///< bytes that cannot start a character
    partial,    ///< the text ends in the middle of a possibly valid character
  };
  Kind kind;
  std::size_t size;   ///< size of the character, or of the longest valid prefix; at least 1
  char32_t code = 0;  ///< the character's code point
};

/// Returns the unit at the start of `text`, which must not be empty. Characters must be well-formed according to Table
/// 3-7 of the Unicode Standard: overlong forms, surrogates and values above U+10FFFF are invalid. Invalid sequences are
/// split into "maximal subparts", as defined there.
Utf8Unit utf8_unit(std::string_view text);

/// Appends a code point as UTF-8. It must be below 0x110000 and not a surrogate.
void append_utf8(std::string& out, char32_t code);

/// Splits a stream of bytes, such as decoded tokens, at character boundaries, so that each part can be printed
/// immediately. Invalid bytes are replaced by U+FFFD or kept, depending on `Invalid`.
class Utf8Stream {
 public:
  enum class Invalid { replace, pass };
  explicit Utf8Stream(Invalid invalid = Invalid::replace) : invalid_(invalid) {}

  /// Appends bytes and returns all complete characters. Keeps at most three bytes for the next call.
  std::string push(std::string_view bytes);
  /// Ends the text. Pending bytes are invalid and are returned as one U+FFFD or unchanged. The stream can be used again
  /// afterwards.
  std::string flush();
  /// Number of bytes that belong to an incomplete character.
  std::size_t pending() const { return pending_.size(); }

 private:
  Invalid invalid_;
  std::string pending_;
};

}  // namespace tessera
