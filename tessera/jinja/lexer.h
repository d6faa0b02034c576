// SPDX-License-Identifier: Apache-2.0
// Splits a template into tokens like Jinja 3 with trim_blocks and lstrip_blocks, which `transformers` sets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

enum class TokenKind { data, block_begin, block_end, output_begin, output_end, name, text, integer, real, sign, end };

struct Token {
  TokenKind kind;
  std::string text;  ///< the text of the token; strings have no quotes, and their escapes are decoded
  int line;
  std::int64_t integer = 0;
  double real = 0;
};

/// Splits a template into tokens. Drops one newline at the end of the template, like Jinja. Throws FormatError with the
/// line if the template contains an invalid token.
std::vector<Token> tokens_of(std::string_view source);

/// Throws a FormatError such as "chat template, line 7: what".
[[noreturn]] void syntax_error(int line, const std::string& what, const std::string& remedy = {});

}  // namespace tessera::jinja
