// SPDX-License-Identifier: Apache-2.0
// A conversation with a model; each answer only reads the tokens that are new.
#pragma once

#include <string>

#include "tessera/base/callback.h"
#include "tessera/llm/chat.h"
#include "tessera/llm/text_session.h"

namespace tessera {

/// What to do when a conversation exceeds the context.
enum class WhenFull : std::uint8_t {
  refuse,  ///< the answer ends, and a question that does not fit throws ArgumentError
  shift,   ///< the oldest messages after the system prompt are dropped from the prompt
};

/// Options of ChatSession.
struct ChatOptions {
  ChatPromptOptions prompt;               ///< How the conversation is rendered.
  GenerateOptions generate;               ///< How answers are generated.
  std::int64_t context = 0;               ///< maximum number of tokens; 0: the model's context length, at most 8,192
  WhenFull when_full = WhenFull::refuse;  ///< What to do when the context is full.
};

/// Called with each piece of the answer (whole characters only), thinking before text. Return false to stop.
using AnswerCallback = Callback<bool(const ThinkingSplitter::Parts&)>;

/// An answer and its statistics.
struct ChatAnswer {
  ChatMessage message;        ///< The answer as a message of the conversation.
  GenerateResult result;      ///< Tokens, times and the stop reason.
  std::int64_t left_out = 0;  ///< number of messages that were dropped from the prompt
};

/// A conversation with a model.
class ChatSession {
 public:
  /// `model` must outlive the session. Throws ArgumentError if an option is out of range, or there are tools and the
  /// template does not support them.
  ChatSession(const LanguageModel& model, ChatTemplate chat_template, ChatOptions options = {});

  /// The conversation so far; answers are appended to it. Changes take effect at the next answer.
  Conversation conversation;

  /// Generates an answer and appends it to the conversation, even if it was cut short, but not if it was cancelled
  /// before its first character. With tools (`ChatPromptOptions::tools`), tool calls are parsed from the text and get
  /// ids. Throws ArgumentError if the conversation does not fit in the context or the template rejects it, and the
  /// model's errors; nothing is appended then.
  ChatAnswer answer(const AnswerCallback& on_parts = {});
  /// Renders the conversation. Throws ArgumentError if it does not fit in the context.
  ChatPrompt prompt() const;

  /// The options; changes take effect at the next answer.
  ChatOptions& options() { return options_; }
  /// The template that renders the conversation.
  const ChatTemplate& chat_template() const { return template_; }
  /// The maximum number of tokens.
  std::int64_t context() const { return session_.context(); }
  /// The model.
  const LanguageModel& model() const { return model_; }
  /// The underlying session, with the tokens read so far.
  const TextSession& text() const { return session_; }

 private:
  ChatPrompt prompt_without(std::size_t left_out) const;
  void assign_call_ids(std::vector<ToolCall>& calls) const;
  void require_fits(const ChatPrompt& prompt) const;
  /// Index of the first message after the system messages, which are never dropped.
  std::size_t first_turn() const;

  const LanguageModel& model_;
  ChatTemplate template_;
  ChatOptions options_;
  TextSession session_;
  Conversation left_out_;  ///< messages that the last answer did not read
};

/// Adds to `options` what ends and structures answers: the text that ends a turn if the vocabulary has no token for it,
/// and thinking marks (with `tools` also call marks) that are control tokens. Warns if tokens of a built-in template
/// are missing from the vocabulary.
void set_chat_ends(GenerateOptions& options, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                   bool tools = false);

/// Returns the default context: the model's context length, at most 8,192, or less if memory is short. Returns 1 if not
/// even that fits; loading then fails. Throws the errors of estimate_memory.
std::int64_t default_context(const GgufFile& file, std::span<const Device> devices, const GenerateOptions& options);

/// Returns `otherwise`, overridden by the sampling options of the file ("general.sampling.*"). Warns of unsupported
/// options (mirostat, xtc, another order). Throws FormatError if an option is out of range.
SamplerOptions sampling_of(const GgufFile& file, SamplerOptions otherwise = {});

}  // namespace tessera
