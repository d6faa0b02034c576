// SPDX-License-Identifier: Apache-2.0
// Properties of characters from the Unicode Character Database: those that BERT's normalisation of text needs.
// Internal.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::unicode {

bool is_nonspacing_mark(char32_t c);  ///< True for characters of category Mn, such as combining accents.
bool is_punctuation(char32_t c);      ///< True for characters of the categories P.
/// True for control, format and private-use characters (categories Cc, Cf and Co).
bool is_other(char32_t c);
/// Returns the lower-case form if it is one character, otherwise `c`.
char32_t to_lower(char32_t c);
/// Appends the canonical decomposition (NFD) of `c` without its non-spacing marks.
void append_without_marks(std::u32string& out, char32_t c);

}  // namespace tessera::unicode
