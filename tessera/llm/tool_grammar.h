// SPDX-License-Identifier: Apache-2.0
// Grammars of answers that consist of tool calls.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/grammar/expression.h"
#include "tessera/llm/tool_call_syntax.h"

namespace tessera {

class Grammar;

inline constexpr std::uint32_t most_tool_calls = 32;  ///< calls of an answer

/// Builds the grammar of answers that call one or several functions.
class ToolGrammar {
 public:
  /// `syntax` is that of the model's chat template.
  explicit ToolGrammar(ToolCallSyntax syntax) : syntax_(std::move(syntax)) {}

  /// Adds a function that the answer can call. `parameters` is the JSON schema of its arguments, as in
  /// Grammar::from_json_schema; empty: the function has no parameters. Error messages call it `label`.
  ///
  /// Throws FormatError if the schema is not supported or permits other values than objects, or if the name contains
  /// characters other than letters, digits and `_-./:`.
  void add(std::string_view name, std::string_view parameters, const std::string& label);

  /// Compiles the grammar of answers with one call, or with `several` of them if the template can write several.
  /// `thinking` is ChatPrompt::thinking: the answer begins with any text up to the closing mark. Requires at least one
  /// function. Throws FormatError if the grammar is too large, or if no arguments are valid.
  std::shared_ptr<const Grammar> compile(bool several, std::optional<std::size_t> thinking = {}) const;

 private:
  ToolCallSyntax syntax_;
  grammar::Rules rules_;
  std::vector<grammar::Expression> functions_;  ///< name and arguments
};

}  // namespace tessera
