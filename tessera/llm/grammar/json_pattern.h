// SPDX-License-Identifier: Apache-2.0
// Regular expressions for JSON strings: the keywords `pattern` and `format` of JSON schemas.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/llm/grammar/expression.h"

namespace tessera::grammar {

/// Why a regular expression is not supported.
struct PatternError {
  std::string wrong;
  std::size_t at;  ///< position in the pattern, in bytes
};

/// Returns the JSON strings, with quotation marks, in which the pattern occurs. The syntax is a subset of ECMA-262:
/// characters, escapes, classes, `.`, groups, alternatives and repetitions, and anchors at the beginning and end of the
/// pattern and of its alternatives. Throws PatternError for everything else.
Expression pattern_expression(std::string_view pattern);

/// Returns the strings of a `format`: date, time, date-time, uuid or ipv4. Returns std::nullopt for other formats.
std::optional<Expression> format_expression(std::string_view format);

}  // namespace tessera::grammar
