// SPDX-License-Identifier: Apache-2.0
// Parses the parts of tool calls in generated text. Functions that begin with take_ remove what they parse from `text`.
// If they return false or an empty value, `text` is unspecified, and what they parse may be incomplete.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/llm/tool_calls.h"

namespace tessera::tool_call_text {

inline constexpr std::string_view white = " \t\r\n";
inline constexpr std::string_view llama = "<|python_tag|>";
inline constexpr std::string_view deepseek_call = "<｜tool▁call▁begin｜>", deepseek_separator = "<｜tool▁sep｜>",
                                  deepseek_end = "<｜tool▁call▁end｜>";
inline constexpr std::string_view elements_begin = "<function=", elements_end = "</function>",
                                  element_open = "<parameter=", element_close = "</parameter>";

bool is_white(std::string_view text);
void skip_white(std::string_view& text);
/// Removes `part` from the beginning of `text`. Returns false if `text` does not begin with it, or if it is empty.
bool skip(std::string_view& text, std::string_view part);
std::string_view trimmed(std::string_view text);

/// Parses JSON. Returns a discarded value if the JSON is invalid or has too many levels of nesting.
nlohmann::ordered_json parsed(std::string_view text);
/// Returns the length of the JSON object, list or string at the beginning of `text`. Returns 0 if there is none, or if
/// it is incomplete.
std::size_t json_length(std::string_view text);
/// Parses a JSON object or list at the beginning of `text`.
std::optional<nlohmann::ordered_json> take_json(std::string_view& text);
/// Serialises a value without white space.
std::string text_of(const nlohmann::ordered_json& value);

/// Parses the members of a call in JSON up to its arguments, which must be an object. Returns the number of open
/// braces. Returns 0 if the arguments do not follow the name.
int take_json_head(std::string_view& text, ToolCall& call);
/// True if the text after [TOOL_CALLS] is a list of objects.
bool is_mistral_list(std::string_view text);
/// Parses NAME, and the id and the marks after it, up to the brace of the arguments.
bool take_mistral_head(std::string_view& text, ToolCall& call);
/// Parses the mark of a call and its name, up to the brace of the arguments.
bool take_deepseek_head(std::string_view& text, ToolCall& call);
/// Parses <function=NAME>.
bool take_element_head(std::string_view& text, ToolCall& call);
/// Returns the position of the mark after a value that begins at `from`, or npos. A JSON value may contain the mark.
std::size_t find_element_end(std::string_view text, std::size_t from);
/// Parses <parameter=KEY>VALUE</parameter>. A value that is valid JSON is parsed; any other value is text.
bool take_element(std::string_view& text, std::string& key, nlohmann::ordered_json& value);

}  // namespace tessera::tool_call_text
