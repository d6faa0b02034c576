// SPDX-License-Identifier: Apache-2.0
// How a chat template writes tool calls. It is learnt from examples that the template renders, because templates of the
// same family differ in marks, names of members and white space.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/llm/chat.h"
#include "tessera/llm/grammar/json_schema.h"

namespace tessera {

/// The text of an answer that consists of tool calls: `open`, the name of a function, its arguments, then for each
/// other call `next`, name and arguments, and finally `close`. In all members, `id_place` represents the id of a call.
struct ToolCallSyntax {
  std::string open = {};
  std::string next = {};  ///< empty: an answer has only one call
  std::string close = {};
  std::string arguments = {};                         ///< between a name and the arguments, if these are JSON
  std::optional<grammar::MemberSyntax> members = {};  ///< how arguments are written, if they are not JSON
};
inline constexpr char id_place = '\0';  ///< represents an id of letters and digits

/// Returns the syntax of a template. Returns std::nullopt if the template writes no calls, or if ToolCallSplitter does
/// not parse calls in this syntax.
std::optional<ToolCallSyntax> detect_tool_call_syntax(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace tessera
