// SPDX-License-Identifier: Apache-2.0
// Functions that a model may ask to have called: their descriptions, and the calls in what it writes. Each family
// writes calls its own way; which one is known from the marks that its chat template has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// What a model asks for.
struct ToolCall {
  std::string id;         ///< by which its result is told from others'; letters and digits
  std::string name;       ///< of the function
  std::string arguments;  ///< a JSON object
  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

/// Descriptions of functions as OpenAI's API and `transformers` take them: a JSON list of
/// {"type": "function", "function": {"name": ..., "description": ..., "parameters": {JSON schema}}}. Objects with a
/// "name" of their own are taken for the inner part. Gives the list in its full form. FormatError with `name` (where it
/// comes from): it is no such list, or two functions have one name.
std::string tools_of_json(std::string_view json, const std::string& name);

/// `value` as JSON of objects and lists that nest at most 64 deep, on one line; nothing if it is none.
std::optional<std::string> json_object(std::string_view value);

/// How calls are written.
struct ToolCallForm {
  /// Kinds of notation.
  enum class Kind : std::uint8_t {
    json,      ///< an object with a name and its arguments, or a list of these (Hermes, Qwen 2.5 and 3, Phi 4 mini)
    mistral,   ///< a list of objects, or NAME{...}, with [CALL_ID] and [ARGS] between in later versions
    deepseek,  ///< NAME, a separator, then JSON
    elements,  ///< <function=NAME><parameter=KEY>VALUE</parameter></function>, or as `json` (Qwen 3 Coder)
  };
  std::string_view open, close;  ///< `close` may be missing at the end
  Kind kind = Kind::json;        ///< The notation between the marks.
};
/// The forms whose opening mark is in a template's text.
std::vector<ToolCallForm> tool_call_forms(std::string_view template_source);
/// All texts that are marks of calls and may be tokens of their own.
std::span<const std::string_view> tool_call_marks();

/// Parts what a model writes into text and calls, as it comes. What follows an opening mark is held back until the end.
/// Where there are no forms but that of Llama 3 ("<|python_tag|>"), or none, an answer that begins with a brace may be
/// a call without marks.
class ToolCallSplitter {
 public:
  /// Looks for calls in any of these forms.
  explicit ToolCallSplitter(std::vector<ToolCallForm> forms);

  /// The text that can be given out now.
  std::string push(std::string_view piece);
  /// What is known once the text has ended.
  struct End {
    std::string text;             ///< that was held back and is no call; everything if one of the calls is malformed
    std::vector<ToolCall> calls;  ///< `id` is empty where the model wrote none
  };
  End finish();  ///< Ends the text.

 private:
  std::vector<ToolCallForm> forms_;
  bool bare_ = false;                ///< calls without marks are looked for
  bool started_ = false;             ///< something that is not white was there
  std::optional<std::size_t> open_;  ///< of forms_
  bool in_bare_ = false;
  std::string held_;
};

}  // namespace tessera
