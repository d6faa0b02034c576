// SPDX-License-Identifier: Apache-2.0
// Conversations in the format that a model was trained on. Messages are rendered with the chat template from the
// model's file (jinja/template.h). When the result is tokenised, user text never becomes a special token.
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
  std::string thinking = {};         ///< of an assistant message: the text between thinking marks
  std::vector<ToolCall> calls = {};  ///< of an assistant message: its tool calls
  std::string call_id = {};          ///< of a tool message: the id of the call that returned `text`
  std::string name = {};             ///< of a tool message: the name of the called function
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

/// Messages, oldest first.
using Conversation = std::vector<ChatMessage>;

/// Returns the tool calls of the last assistant message that still have no result. A result is a message with role
/// "tool".
std::vector<ToolCall> open_calls(const Conversation& conversation);

/// Returns the conversation as JSON in the format of OpenAI's API. Each message is an object with "role" and "content".
/// The members "reasoning_content", "tool_calls", "tool_call_id" and "name" are omitted if they are empty.
std::string to_json(const Conversation& conversation);
/// Parses the format of to_json. "content" may be null or missing if there are "tool_calls". The arguments of a call
/// may be an object, or a string that contains an object. Throws FormatError if the format is invalid or a message has
/// an unknown member; the error reports `name` as the file name.
Conversation conversation_of_json(std::string_view json, const std::string& name);

/// The texts that a model writes before and after its thinking.
struct ThinkingMarks {
  std::string_view open, close;   ///< such as "<think>" and "</think>"
  std::string_view instead = {};  ///< what the model writes before an answer without thinking; may be empty
};
/// The thinking marks of common models. The first entry is "<think>" and "</think>".
std::span<const ThinkingMarks> thinking_marks();

/// Options of ChatTemplate::prompt.
struct ChatPromptOptions {
  bool add_generation_prompt = true;  ///< append the beginning of an answer after the last message
  /// Additional variables for the template: a JSON object such as {"enable_thinking": false}, or empty.
  std::string arguments = {};
  std::string tools = {};           ///< the tools as returned by tools_of_json; empty: no tools
  std::optional<std::tm> now = {};  ///< the time that strftime_now uses; default: the current local time
};

/// A rendered and tokenised conversation.
struct ChatPrompt {
  std::string text;                         ///< the rendered text
  std::vector<EncodeOptions::Range> plain;  ///< ranges of `text` that were inserted from the conversation
  std::vector<TokenId> tokens;              ///< The tokens of `text`.
  /// Set if `text` ends with an opening thinking mark, which means that the answer begins with thinking. The value is
  /// an index into thinking_marks().
  std::optional<std::size_t> thinking;
};

/// Renders conversations in the format that a model was trained on.
class ChatTemplate {
 public:
  /// Returns the chat template of a file. By default, this is "tokenizer.chat_template". If `name` is set, the variant
  /// "tokenizer.chat_template.NAME" is used, or a built-in template of that name if the file has no such variant. If
  /// `tools` is true and `name` is empty, the variant "tool_use" is preferred.
  ///
  /// Throws FormatError if `name` is empty and the file has no template, or if the template uses unsupported Jinja; the
  /// message contains the line. Throws ArgumentError if neither the file nor Tessera has a template called `name`.
  static ChatTemplate of(const GgufFile& file, std::string_view name = {}, bool tools = false);
  /// Returns the built-in template of a model family. These templates follow the model cards. Throws ArgumentError if
  /// `family` is not in `families()`.
  static ChatTemplate built_in(std::string_view family);
  static std::vector<std::string> families();  ///< The names of the built-in templates.
  /// Compiles a template. Error messages call it `name`. Throws FormatError if it uses unsupported Jinja.
  ChatTemplate(std::string_view source, std::string name);

  /// A description for messages, such as "the built-in chat template chatml".
  const std::string& name() const { return name_; }
  /// True for a built-in template.
  bool is_built_in() const { return built_in_; }
  /// True if the template renders tool descriptions, tool calls and their results.
  bool takes_tools() const { return call_style_ != CallStyle::none; }
  /// Throws ArgumentError unless takes_tools().
  void require_tools() const;
  /// The formats in which the model may write tool calls.
  const std::vector<ToolCallForm>& call_forms() const { return call_forms_; }

  /// Renders and tokenises a conversation. Only the template's own text can become special tokens. The prompt has
  /// exactly one begin token if the template writes one or the file requires one.
  ///
  /// The thinking of previous answers is passed to the template in the form that it expects. A template that uses
  /// "reasoning_content" receives the thinking in that field. A template that searches for the closing mark receives it
  /// as a part of the text. Other templates do not receive it.
  ///
  /// Throws ArgumentError if the template rejects the conversation (jinja::Refused) or `arguments` is not a JSON
  /// object. Throws FormatError if rendering fails or exceeds a limit.
  ChatPrompt prompt(const Conversation& conversation, const Tokenizer& tokenizer,
                    const ChatPromptOptions& options = {}) const;

  /// Returns the special tokens that a built-in template requires but the vocabulary does not contain. Returns an empty
  /// list for a template from a file.
  std::vector<std::string> missing_tokens(const Tokenizer& tokenizer) const;
  /// Returns the text that ends an answer if this is a built-in template and the vocabulary has no token for that text.
  /// Otherwise returns an empty string.
  std::string end_text(const Tokenizer& tokenizer) const;

 private:
  enum class ThinkingStyle { separate_field, within, dropped };
  /// How a message with tool calls is passed to the template. The arguments are an object or a string, and empty
  /// content is "" or None (`no_content`).
  enum class CallStyle { none, object, object_no_content, text, text_no_content };
  jinja::Value message(const ChatMessage& m) const;
  bool expects_content_parts() const;
  CallStyle detect_call_style() const;

  std::string name_;
  std::shared_ptr<const jinja::Template> template_;
  ThinkingStyle thinking_style_ = ThinkingStyle::dropped;
  std::size_t marks_ = 0;  ///< index of the thinking marks that the template contains
  bool parts_ = false;     ///< text is passed as a list of objects with "type" and "text"
  CallStyle call_style_ = CallStyle::none;
  std::vector<ToolCallForm> call_forms_;
  bool built_in_ = false;
  std::vector<std::string> special_;  ///< special tokens of a built-in template; the first one ends a turn
};

/// Splits a model's output into thinking and answer while it is generated. Removes the thinking marks, even if a mark
/// is split across pieces, and the white space around the thinking.
class ThinkingSplitter {
 public:
  /// `inside` is ChatPrompt::thinking; it is set if the prompt already contains the opening mark.
  explicit ThinkingSplitter(std::optional<std::size_t> inside = {});

  /// Output split into thinking and answer.
  struct Parts {
    std::string thinking, text;  ///< the thinking, and the other text
  };
  /// Appends `piece`. Returns the output that can be shown now: everything except a suffix that may become a mark.
  Parts push(std::string_view piece);
  /// Returns the remaining output. Call this once, after the last piece.
  Parts flush();
  /// True between the opening mark and the closing mark.
  bool inside() const { return state_ == State::inside; }

 private:
  enum class State { start, inside, answer_start, answer };
  Parts take(bool end);

  State state_;
  std::size_t marks_ = 0;
  bool thought_ = false;  ///< a part of the thinking was already returned
  std::string held_;
};

}  // namespace tessera
