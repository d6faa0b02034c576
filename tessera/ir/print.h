// SPDX-License-Identifier: Apache-2.0
// Print formats, and the text of floats: the same on every device.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::ir {

/// Literal text and an optional value after it, written {} or {:.n} with n significant digits.
struct PrintPiece {
  std::string text;  ///< with {{ and }} replaced by single braces
  bool value = false;
  int digits = 0;  ///< 0: enough digits to distinguish all floats
};
/// Parses a format. Unmatched braces are treated as text.
std::vector<PrintPiece> print_pieces(std::string_view format);
/// Why a format is invalid for this number of values; empty if it is valid.
std::string print_mistake(std::string_view format, std::size_t values);
inline constexpr const char* print_remedy = "Write one {} or {:.n} per value, and {{ and }} for literal braces";

inline constexpr int float_digits = 9, double_digits = 17;
/// Formats like C's %g with that many digits; NaN is "nan", regardless of its sign.
std::string print_float(double value, int digits);

}  // namespace tessera::ir
