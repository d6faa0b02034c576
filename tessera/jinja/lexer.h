// SPDX-License-Identifier: Apache-2.0
// The words of a template, as Jinja 3 splits them with trim_blocks and lstrip_blocks, as `transformers` sets them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

enum class TokenKind { data, block_begin, block_end, output_begin, output_end, name, text, integer, real, sign, end };

struct Token {
  TokenKind kind;
  std::string text;  ///< what it is; of `text` without quotes and escapes
  int line;
  std::int64_t integer = 0;
  double real = 0;
};

/// Throws FormatError with the line. One newline at the template's end is dropped, as Jinja drops it.
std::vector<Token> tokens_of(std::string_view source);

/// Throws FormatError: "chat template, line 7: what".
[[noreturn]] void syntax_error(int line, const std::string& what, const std::string& remedy = {});

}  // namespace tessera::jinja
