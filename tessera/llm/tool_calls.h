// SPDX-License-Identifier: Apache-2.0
// Tool calls: descriptions of functions for the model, and parsing the calls in its output. The format of calls differs
// between model families; it is detected from the marks in the chat template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A call of a function, requested by the model.
struct ToolCall {
  std::string id;         ///< identifies the call in its result; letters and digits
  std::string name;       ///< name of the function
  std::string arguments;  ///< a JSON object
  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

/// Parses descriptions of functions in the format of OpenAI's API and `transformers`: a JSON list of {"type":
/// "function", "function": {"name": ..., "description": ..., "parameters": {JSON schema}}}. Objects with a "name" at
/// the top level are wrapped. Returns the list in its full form. Throws FormatError, with `name` as the file's name, if
/// the format is invalid or two functions have the same name.
std::string tools_of_json(std::string_view json, const std::string& name);

/// Returns `value` as a JSON object on one line; nothing if it is not a JSON object or nests more than 64 levels.
std::optional<std::string> json_object(std::string_view value);

/// A format of calls.
struct ToolCallForm {
  /// Notations of calls.
  enum class Kind : std::uint8_t {
    json,      ///< an object with name and arguments, or a list of them (Hermes, Qwen 2.5 and 3, Phi 4 mini)
    mistral,   ///< a list of objects, or NAME{...}; later versions with [CALL_ID] and [ARGS] in between
    deepseek,  ///< NAME, a separator, then JSON
    elements,  ///< <function=NAME><parameter=KEY>VALUE</parameter></function>, or the same as `json` (Qwen 3 Coder)
  };
  std::string_view open, close;  ///< `close` may be missing at the end of the text
  Kind kind = Kind::json;        ///< The notation between the marks.
};
/// Returns the formats whose opening mark occurs in a template.
std::vector<ToolCallForm> tool_call_forms(std::string_view template_source);
/// All marks of calls that may be special tokens.
std::span<const std::string_view> tool_call_marks();

/// Splits a model's output into text and calls while it is generated. Everything after an opening mark is held back
/// until the end. If the only format is Llama 3's ("<|python_tag|>"), or there is none, an answer that begins with a
/// brace may be a call without marks.
class ToolCallSplitter {
 public:
  /// Detects calls in any of these formats.
  explicit ToolCallSplitter(std::vector<ToolCallForm> forms);

  /// Appends `piece` and returns the text that can be emitted now.
  std::string push(std::string_view piece);
  /// The rest of the output.
  struct End {
    std::string text;             ///< text that was held back and is not a call; everything if a call is malformed
    std::vector<ToolCall> calls;  ///< `id` is empty if the model wrote none
  };
  End finish();  ///< Parses what was held back, at the end.

 private:
  std::vector<ToolCallForm> forms_;
  bool bare_ = false;                ///< detect calls without marks
  bool started_ = false;             ///< something other than white space was seen
  std::optional<std::size_t> open_;  ///< index into forms_
  bool in_bare_ = false;
  std::string held_;
};

}  // namespace tessera
