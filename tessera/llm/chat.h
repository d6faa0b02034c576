// SPDX-License-Identifier: Apache-2.0
// Conversations in the format that a model was trained on: messages are rendered with the chat template of the model's
// file (jinja/template.h) and tokenised such that text of the user never becomes a special token.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/gguf.h"
#include "tessera/llm/tokenizer.h"
#include "tessera/llm/tool_calls.h"

namespace tessera {

namespace jinja {
class Template;
class Value;
}  // namespace jinja

/// One message of a conversation.
struct ChatMessage {
  std::string role;                  ///< "system", "user", "assistant", or another role that the template supports
  std::string text;                  ///< UTF-8
  std::string thinking = {};         ///< assistant: the text between its thinking marks
  std::vector<ToolCall> calls = {};  ///< assistant: its tool calls
  std::string call_id = {};          ///< tool: the id of the call whose result is `text`
  std::string name = {};             ///< tool: the name of the function
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

/// Messages, oldest first.
using Conversation = std::vector<ChatMessage>;

/// Returns the calls of the last assistant message that have no result (message of role "tool") yet.
std::vector<ToolCall> open_calls(const Conversation& conversation);

/// Returns a list of objects with "role", "content" and, if not empty, "reasoning_content", "tool_calls",
/// "tool_call_id" and "name", as in OpenAI's API.
std::string to_json(const Conversation& conversation);
/// Parses the format of to_json. "content" may be null or missing if there are "tool_calls"; arguments may be an object
/// or a string that contains one. Throws FormatError, with `name` as the file's name, if the format is invalid; unknown
/// members are an error, too.
Conversation conversation_of_json(std::string_view json, const std::string& name);

/// The texts that enclose a model's thinking.
struct ThinkingMarks {
  std::string_view open, close;  ///< The marks.
};
/// The marks of common models, "<think>" first.
std::span<const ThinkingMarks> thinking_marks();

/// Options of ChatTemplate::prompt.
struct ChatPromptOptions {
  bool add_generation_prompt = true;  ///< append the start of an answer after the last message
  /// Additional variables of the template: a JSON object such as {"enable_thinking": false}. Empty: none.
  std::string arguments = {};
  std::string tools = {};           ///< the format of tools_of_json; empty: none
  std::optional<std::tm> now = {};  ///< the time for strftime_now; the local time if empty
};

/// A conversation as the model reads it.
struct ChatPrompt {
  std::string text;                         ///< the rendered text
  std::vector<EncodeOptions::Range> plain;  ///< ranges of `text` from the conversation, not the template
  std::vector<TokenId> tokens;              ///< The tokens of `text`.
  /// If `text` ends with an opening thinking mark: its index in thinking_marks(). The answer then begins with thinking.
  std::optional<std::size_t> thinking;
};

/// Renders conversations in the format that a model was trained on.
class ChatTemplate {
 public:
  /// Returns the template of a file: "tokenizer.chat_template", or the variant "tokenizer.chat_template.NAME" if `name`
  /// is set; with `tools` and without a name, the variant "tool_use" if it exists. If the file has no such variant,
  /// `name` selects a built-in template. Throws FormatError if no name is given and the file has no template, or if the
  /// template uses unsupported Jinja (with the line); ArgumentError if neither a variant nor a built-in template has
  /// this name.
  static ChatTemplate of(const GgufFile& file, std::string_view name = {}, bool tools = false);
  /// Returns one of `families()`, written after the model cards. Throws ArgumentError for another name.
  static ChatTemplate built_in(std::string_view family);
  static std::vector<std::string> families();  ///< The names of the built-in templates.
  /// Compiles a template. `name` is used in messages. Throws FormatError if it uses unsupported Jinja.
  ChatTemplate(std::string_view source, std::string name);

  /// "the file's chat template", "the built-in chat template chatml", ...
  const std::string& name() const { return name_; }
  /// True for a built-in template.
  bool is_built_in() const { return built_in_; }
  /// Whether the template renders tools, calls and their results.
  bool takes_tools() const { return call_style_ != CallStyle::none; }
  /// Throws ArgumentError unless takes_tools().
  void require_tools() const;
  /// The formats in which the template writes calls.
  const std::vector<ToolCallForm>& call_forms() const { return call_forms_; }

  /// Renders and tokenises a conversation. Only the template's own text can become special tokens. The prompt has
  /// exactly one begin token if the template writes one or the file requires one. The thinking of previous answers is
  /// passed on as the template expects it: separately if it uses "reasoning_content", within the text if it searches
  /// for the closing mark, else not at all. Throws ArgumentError if the template rejects the conversation
  /// (jinja::Refused) or `arguments` is not a JSON object; FormatError if rendering fails or exceeds the limits.
  ChatPrompt prompt(const Conversation& conversation, const Tokenizer& tokenizer,
                    const ChatPromptOptions& options = {}) const;

  /// Returns the texts of a built-in template that should be special tokens but are not in the vocabulary. Always empty
  /// for a template from a file.
  std::vector<std::string> missing_tokens(const Tokenizer& tokenizer) const;
  /// Returns the text that ends an answer, if this is a built-in template and the vocabulary has no token for it; else
  /// empty.
  std::string end_text(const Tokenizer& tokenizer) const;

 private:
  enum class ThinkingStyle { separate_field, within, dropped };
  /// How messages with calls are passed: arguments as an object or as text, content "" or None.
  enum class CallStyle { none, object, object_no_content, text, text_no_content };
  jinja::Value message(const ChatMessage& m) const;
  bool expects_content_parts() const;
  CallStyle detect_call_style() const;

  std::string name_;
  std::shared_ptr<const jinja::Template> template_;
  ThinkingStyle thinking_style_ = ThinkingStyle::dropped;
  std::size_t marks_ = 0;  ///< the marks that the template writes or searches for
  bool parts_ = false;     ///< text is passed as a list of parts with "type" and "text"
  CallStyle call_style_ = CallStyle::none;
  std::vector<ToolCallForm> call_forms_;
  bool built_in_ = false;
  std::vector<std::string> special_;  ///< built-in templates: the special tokens, end of turn first
};

/// Splits a model's output into thinking and answer while it is generated. Removes the marks, even if they arrive in
/// pieces, and white space around the thinking.
class ThinkingSplitter {
 public:
  /// `inside`: the prompt already opened the thinking (ChatPrompt::thinking).
  explicit ThinkingSplitter(std::optional<std::size_t> inside = {});

  /// Output split into thinking and answer.
  struct Parts {
    std::string thinking, text;  ///< thinking, and everything else
  };
  /// Appends `piece` and returns the output that is complete, thinking before text.
  Parts push(std::string_view piece);
  /// Returns the rest at the end.
  Parts flush();
  /// True while inside the thinking.
  bool inside() const { return state_ == State::inside; }

 private:
  enum class State { start, inside, answer_start, answer };
  Parts take(bool end);

  State state_;
  std::size_t marks_ = 0;
  bool thought_ = false;  ///< some of the thinking was returned
  std::string held_;
};

}  // namespace tessera
