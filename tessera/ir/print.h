// SPDX-License-Identifier: Apache-2.0
// The formats of print statements and the text of floats, one meaning for every device.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::ir {

/// Text, and what stands behind it: a value, written {} or {:.n} with n significant digits, or nothing.
struct PrintPiece {
  std::string text;  ///< of which {{ and }} have become single braces
  bool value = false;
  int digits = 0;  ///< 0: as many as tell all floats apart
};
/// Takes a format apart. A brace that belongs to nothing is text.
std::vector<PrintPiece> print_pieces(std::string_view format);
/// What is wrong with a format for so many values; empty if nothing is.
std::string print_mistake(std::string_view format, std::size_t values);
inline constexpr const char* print_remedy = "Give a {} or {:.n} for each value, and write {{ and }} for braces";

inline constexpr int float_digits = 9, double_digits = 17;
/// As C's %g with that many digits; NaN is nan, whatever its sign.
std::string print_float(double value, int digits);

}  // namespace tessera::ir
