// SPDX-License-Identifier: Apache-2.0
// Parses GBNF, the notation of llama.cpp for grammars (grammars/README.md in its repository).
#pragma once

#include <string_view>

#include "tessera/llm/grammar/expression.h"

namespace tessera::grammar {

/// Parses a grammar; its first symbol is the rule `root`. Error messages call it `name`. Throws FormatError with line
/// and column if the syntax is invalid, if a rule is defined twice or not at all, or if a limit is exceeded.
Rules parse_gbnf(std::string_view text, std::string_view name);

}  // namespace tessera::grammar
