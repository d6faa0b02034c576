// SPDX-License-Identifier: Apache-2.0
// Lines and columns in error messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::grammar {

/// Returns a name for the position `at` of a text, such as "grammar.gbnf:3:14". Lines and columns begin at 1, and
/// columns are counted in bytes.
inline std::string position_name(std::string_view name, std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t begin = before.rfind('\n');
  const std::size_t column = begin == std::string_view::npos ? before.size() + 1 : before.size() - begin;
  return std::string(name) + ":" + std::to_string(line) + ":" + std::to_string(column);
}

}  // namespace tessera::grammar
