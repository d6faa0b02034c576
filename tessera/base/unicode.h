// SPDX-License-Identifier: Apache-2.0
// UTF-8 at the byte level: finding whole characters, and a stream that never emits part of one. Character classes are
// handled by PCRE2 (tokenizer_split.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// The unit at the start of a byte string.
struct Utf8Unit {
  enum class Kind {
    character,  ///< a well-formed character
    invalid,    ///< bytes that cannot begin a character
    partial,    ///< the text ends within a possibly valid character
  };
  Kind kind;
  std::size_t size;   ///< bytes of the character, or of the longest valid prefix; at least 1
  char32_t code = 0;  ///< the character's code point
};

/// The unit at the start of `text`, which must not be empty. Well-formed as in Table 3-7 of the Unicode Standard (no
/// overlong forms, no surrogates, nothing above U+10FFFF); invalid sequences are split into "maximal subparts".
Utf8Unit utf8_unit(std::string_view text);

/// Appends a code point (below 0x110000, not a surrogate) as UTF-8.
void append_utf8(std::string& out, char32_t code);

/// Regroups pieces of bytes, such as decoded tokens, into pieces of whole characters, so that each piece can be printed
/// immediately. Bytes that are not UTF-8 become U+FFFD or pass unchanged (`Invalid`).
class Utf8Stream {
 public:
  enum class Invalid { replace, pass };
  explicit Utf8Stream(Invalid invalid = Invalid::replace) : invalid_(invalid) {}

  /// Appends bytes and returns all complete characters. Keeps at most three bytes for the next call.
  std::string push(std::string_view bytes);
  /// Ends the text: pending bytes are returned as invalid bytes (one U+FFFD, or unchanged). The stream can then be
  /// reused.
  std::string flush();
  /// The number of bytes that wait for the rest of their character.
  std::size_t pending() const { return pending_.size(); }

 private:
  Invalid invalid_;
  std::string pending_;
};

}  // namespace tessera
