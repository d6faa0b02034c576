// SPDX-License-Identifier: Apache-2.0
// Conversations as a model was trained to read them: turns are written by the chat template that the model's file
// brings (jinja/template.h), and become tokens in which no word of a user's is a special token.
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

/// One turn of a conversation.
struct ChatMessage {
  std::string role;                  ///< "system", "user", "assistant", or what else the template knows
  std::string text;                  ///< UTF-8
  std::string thinking = {};         ///< of an assistant: what it wrote between its marks of thinking, without these
  std::vector<ToolCall> calls = {};  ///< of an assistant: what it asks for
  std::string call_id = {};          ///< of a tool: the call whose result `text` is
  std::string name = {};             ///< of a tool: the function's
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

/// Oldest first.
using Conversation = std::vector<ChatMessage>;

/// The results that are still to be given: calls of the last answer without a message of role "tool" after it.
std::vector<ToolCall> open_calls(const Conversation& conversation);

/// A list of objects with "role", "content" and, where there is some, "reasoning_content", "tool_calls", "tool_call_id"
/// and "name": the form of OpenAI's API.
std::string to_json(const Conversation& conversation);
/// FormatError with `name` for what is no such list. Other members of the objects are refused, not dropped. "content"
/// may be null or missing beside "tool_calls"; arguments may be an object or a text with one.
Conversation conversation_of_json(std::string_view json, const std::string& name);

/// The texts around what a model thinks before it answers.
struct ThinkingMarks {
  std::string_view open, close;  ///< The marks.
};
/// Those of the common families, "<think>" first.
std::span<const ThinkingMarks> thinking_marks();

/// Options of ChatTemplate::prompt.
struct ChatPromptOptions {
  bool add_generation_prompt = true;  ///< what begins an answer is written behind the last turn
  /// Further names for the template: a JSON object such as {"enable_thinking": false}. Empty: none.
  std::string arguments = {};
  std::string tools = {};           ///< as of tools_of_json; empty: none
  std::optional<std::tm> now = {};  ///< what strftime_now shows; the local time without
};

/// A conversation as a model reads it.
struct ChatPrompt {
  std::string text;                         ///< as the template writes it
  std::vector<EncodeOptions::Range> plain;  ///< bytes of it that are of the conversation, not of the template
  std::vector<TokenId> tokens;              ///< The tokens of `text`.
  /// If `text` ends behind an opening mark of thinking: its index in thinking_marks(). The answer begins with thoughts.
  std::optional<std::size_t> thinking;
};

/// Writes conversations as a model was trained to read them.
class ChatTemplate {
 public:
  /// The template of a file: "tokenizer.chat_template", or the variant "tokenizer.chat_template.NAME" if one is named;
  /// with `tools` and no name, the variant "tool_use" if there is one. Other names are those of built-in families.
  /// FormatError: the file has none, and none is named; it is outside of what jinja/ knows (with the line).
  /// ArgumentError: no variant and no family has this name.
  static ChatTemplate of(const GgufFile& file, std::string_view name = {}, bool tools = false);
  /// One of `families()`, each after the model cards of its family; ArgumentError for another name.
  static ChatTemplate built_in(std::string_view family);
  static std::vector<std::string> families();  ///< The families that have a built-in template.
  /// From a template's text. FormatError as of `of`, with `name`.
  ChatTemplate(std::string_view source, std::string name);

  /// "the file's chat template", "the built-in chat template chatml", ...
  const std::string& name() const { return name_; }
  /// True if the template is one of the library's own.
  bool is_built_in() const { return built_in_; }
  /// Whether it tells a model of tools, and writes down calls and their results.
  bool takes_tools() const { return call_style_ != CallStyle::none; }
  /// ArgumentError if it does not.
  void require_tools() const;
  /// How calls are written after it.
  const std::vector<ToolCallForm>& call_forms() const { return call_forms_; }

  /// Renders and encodes. Special tokens come from the template's own text; a conversation's text is plain. There is
  /// one begin token if the template writes one or the file wants one, never two. What an assistant thought goes back
  /// as the template takes it: beside the text if it reads "reasoning_content", within it if it looks for the closing
  /// mark itself, else not at all. ArgumentError: the template refuses the conversation (jinja::Refused), or
  /// `arguments` is no JSON object; FormatError: it goes wrong, or takes more steps or text than allowed.
  ChatPrompt prompt(const Conversation& conversation, const Tokenizer& tokenizer,
                    const ChatPromptOptions& options = {}) const;

  /// Texts of a built-in template that should be special tokens and are none in this vocabulary. A template of the file
  /// is not asked: it is the file's own.
  std::vector<std::string> missing_tokens(const Tokenizer& tokenizer) const;
  /// The text that ends an answer, for a built-in template whose vocabulary has no such token; else empty.
  std::string end_text(const Tokenizer& tokenizer) const;

 private:
  enum class ThinkingStyle { beside, within, dropped };
  /// How a message with calls is given: its arguments as an object or a text, its content "" or none.
  enum class CallStyle { none, object, object_no_content, text, text_no_content };
  jinja::Value message(const ChatMessage& m) const;
  bool expects_content_parts() const;
  CallStyle detect_call_style() const;

  std::string name_;
  std::shared_ptr<const jinja::Template> template_;
  ThinkingStyle thinking_style_ = ThinkingStyle::dropped;
  std::size_t marks_ = 0;  ///< those it writes or looks for
  bool parts_ = false;     ///< text is given as a list of parts with "type" and "text"
  CallStyle call_style_ = CallStyle::none;
  std::vector<ToolCallForm> call_forms_;
  bool built_in_ = false;
  std::vector<std::string> special_;  ///< of a built-in one: what should be tokens, the end of a turn first
};

/// Parts what a model writes into what it thinks and what it answers, as it comes. Marks are taken out, also where they
/// come in pieces, and white space around thoughts is taken off.
class ThinkingSplitter {
 public:
  /// `inside`: the prompt opened the part already (ChatPrompt::thinking).
  explicit ThinkingSplitter(std::optional<std::size_t> inside = {});

  /// Text that can be given out, sorted into thoughts and answer.
  struct Parts {
    std::string thinking, text;  ///< thoughts, and what is not a thought
  };
  /// What can be given out now, thoughts before text.
  Parts push(std::string_view piece);
  /// The end: what was held back.
  Parts flush();
  /// True inside a thought.
  bool inside() const { return state_ == State::inside; }

 private:
  enum class State { start, inside, answer_start, answer };
  Parts take(bool end);

  State state_;
  std::size_t marks_ = 0;
  bool thought_ = false;  ///< something of the thoughts was given out
  std::string held_;
};

}  // namespace tessera
