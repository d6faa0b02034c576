// SPDX-License-Identifier: Apache-2.0
// Tool calls. Validates the descriptions of functions that are passed to a model, and parses the calls in its output.
// The format of calls differs between model families and is detected from the marks in the chat template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A function call that the model requests.
struct ToolCall {
  std::string id;         ///< letters and digits; the message with the result contains the same id
  std::string name;       ///< name of the function
  std::string arguments;  ///< a JSON object
  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

/// Parses descriptions of functions in the format of OpenAI's API and `transformers`: a JSON list of {"type":
/// "function", "function": {"name": ..., "description": ..., "parameters": {JSON schema}}}. The inner object may also
/// be given directly. Returns the list in its full form. Throws FormatError if the format is invalid or two functions
/// have the same name; the error reports `name` as the file name.
std::string tools_of_json(std::string_view json, const std::string& name);

/// Returns the JSON object `value` formatted on one line. Returns std::nullopt if `value` is not a JSON object or has
/// more than 64 levels of nesting.
std::optional<std::string> json_object(std::string_view value);

/// Gives each call an id that no other call has, if it has none or if its id is in `taken`. Ids have nine letters and
/// digits, because Mistral's templates require it.
void assign_call_ids(std::vector<ToolCall>& calls, std::vector<std::string> taken);

/// A format of tool calls.
struct ToolCallForm {
  /// The notation of a call.
  enum class Kind : std::uint8_t {
    json,      ///< an object with name and arguments, or a list of such objects (Hermes, Qwen 2.5 and 3, Phi 4 mini)
    mistral,   ///< a list of objects, or NAME{...}; later versions write [CALL_ID] and [ARGS] before the brace
    deepseek,  ///< NAME, a separator, then JSON
    elements,  ///< <function=NAME><parameter=KEY>VALUE</parameter></function>, or the same as `json` (Qwen 3 Coder)
  };
  std::string_view open, close;  ///< Marks before and after a call; the model may omit `close` at the end of the text.
  Kind kind = Kind::json;        ///< The notation between the marks.
};
/// Returns the formats whose opening mark occurs in a chat template.
std::vector<ToolCallForm> tool_call_forms(std::string_view template_source);
/// The marks of all formats that may be special tokens.
std::span<const std::string_view> tool_call_marks();

/// Splits a model's output into text and tool calls while it is generated. Everything after an opening mark is held
/// back until the end. If there is no format, or only the format of Llama 3 ("<|python_tag|>"), an answer that begins
/// with a brace is parsed as a call without marks.
class ToolCallSplitter {
 public:
  /// `forms` are the formats to detect.
  explicit ToolCallSplitter(std::vector<ToolCallForm> forms);

  /// Appends `piece` and returns the text that can be emitted now.
  std::string push(std::string_view piece);
  /// The output that was held back.
  struct End {
    std::string text;             ///< text that is not a call; all of the text if a call is malformed
    std::vector<ToolCall> calls;  ///< the calls; an id is empty if the model did not write one
  };
  End finish();  ///< Parses the text that was held back. Call this once, after the last piece.
  /// The text that is held back.
  std::string_view held() const { return held_; }
  /// The format of the calls in held(), or nullptr if there is no call yet.
  const ToolCallForm* form() const;

 private:
  std::vector<ToolCallForm> forms_;
  bool bare_ = false;                ///< detect calls without marks
  bool started_ = false;             ///< the output so far is not only white space
  std::optional<std::size_t> open_;  ///< the format whose opening mark was found: an index into forms_
  bool in_bare_ = false;
  std::string held_;
};

}  // namespace tessera
