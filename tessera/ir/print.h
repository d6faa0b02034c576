// SPDX-License-Identifier: Apache-2.0
// Parses print formats and formats floats. All devices print identical text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::ir {

/// Literal text, followed by an optional value. A format writes the value as {}, or as {:.n} for n significant digits.
struct PrintPiece {
  std::string text;  ///< doubled braces {{ and }} are replaced by single ones
  bool value = false;
  int digits = 0;  ///< 0 means enough digits to distinguish all floats
};
/// Parses a format. Unmatched braces are treated as text.
std::vector<PrintPiece> print_pieces(std::string_view format);
/// Returns why a format is invalid for this number of values, or "" if it is valid.
std::string print_mistake(std::string_view format, std::size_t values);
inline constexpr const char* print_remedy = "Write one {} or {:.n} per value, and {{ and }} for literal braces";

inline constexpr int float_digits = 9, double_digits = 17;
/// Formats like C's %g with `digits` significant digits. NaN is "nan", regardless of its sign.
std::string print_float(double value, int digits);

}  // namespace tessera::ir
