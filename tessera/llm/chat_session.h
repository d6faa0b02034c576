// SPDX-License-Identifier: Apache-2.0
// A conversation with a model. For each answer, the model reads only the tokens that are not in its cache yet.
#pragma once

#include <string>

#include "tessera/base/callback.h"
#include "tessera/llm/chat.h"
#include "tessera/llm/text_session.h"

namespace tessera {

/// What to do when a conversation exceeds the context.
enum class WhenFull : std::uint8_t {
  refuse,  ///< the answer ends early; a prompt that does not fit throws ArgumentError
  shift,   ///< the oldest messages after the system prompt are dropped, until half of the context is free
};

/// Options of ChatSession.
struct ChatOptions {
  ChatPromptOptions prompt;  ///< How the conversation is rendered.
  GenerateOptions generate;  ///< How answers are generated.
  std::int64_t context = 0;  ///< length of the context in tokens; 0: the model's context length, but at most 8,192
  WhenFull when_full = WhenFull::refuse;  ///< What to do when the context is full.
};

/// Called with each piece of the answer, in whole UTF-8 characters. If a piece has both thinking and text, the thinking
/// comes first. Return false to stop.
using AnswerCallback = Callback<bool(const ThinkingSplitter::Parts&)>;

/// An answer and its statistics.
struct ChatAnswer {
  ChatMessage message;        ///< The answer as a message of the conversation.
  GenerateResult result;      ///< Tokens, timings and the stop reason.
  std::int64_t left_out = 0;  ///< number of messages that were dropped from the prompt
};

/// A conversation with a model.
class ChatSession {
 public:
  /// `model` must outlive the session. Throws ArgumentError if an option is out of range, or if the options contain
  /// tools but the template does not support them.
  ChatSession(const LanguageModel& model, ChatTemplate chat_template, ChatOptions options = {});

  /// The conversation so far. `answer` appends to it, and callers may edit it between answers.
  Conversation conversation;

  /// Generates an answer and appends it to the conversation. An incomplete answer is appended, too, unless it was
  /// cancelled before its first character. If `ChatPromptOptions::tools` is set, tool calls are parsed from the answer,
  /// and each call gets an id.
  ///
  /// Throws ArgumentError if the conversation does not fit in the context or the template rejects it, and the errors of
  /// LanguageModel::generate. The conversation is not changed if an error is thrown.
  ChatAnswer answer(const AnswerCallback& on_parts = {});
  /// Renders the conversation. Throws ArgumentError if it does not fit in the context.
  ChatPrompt prompt() const;

  /// The options. Changes take effect with the next answer.
  ChatOptions& options() { return options_; }
  /// The template that renders the conversation.
  const ChatTemplate& chat_template() const { return template_; }
  /// The maximum number of tokens in the prompt and the answer together.
  std::int64_t context() const { return session_.context(); }
  /// The model.
  const LanguageModel& model() const { return model_; }
  /// The text session, which owns the KV cache.
  const TextSession& text() const { return session_; }

 private:
  ChatPrompt prompt_without(std::size_t left_out) const;
  void assign_call_ids(std::vector<ToolCall>& calls) const;
  void require_fits(const ChatPrompt& prompt) const;
  /// Throws ArgumentError if the system messages alone do not fit in the context.
  void require_system_fits() const;
  /// Index of the first message after the system messages, which are never dropped.
  std::size_t first_turn() const;

  const LanguageModel& model_;
  ChatTemplate template_;
  ChatOptions options_;
  TextSession session_;
  Conversation left_out_;  ///< messages that were dropped from the prompt of the last answer
};

/// Configures `options` for a chat template. If the vocabulary has no token that ends a turn, the text that ends a turn
/// becomes a stop string. Control tokens that mark thinking are included in the output. If `tools` is true, control
/// tokens that mark tool calls are included as well. Logs a warning if the vocabulary does not contain all special
/// tokens of a built-in template.
void set_chat_ends(GenerateOptions& options, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                   bool tools = false);

/// Returns the default context in tokens: the model's context length, but at most 8,192, and less if there is not
/// enough memory. Returns 1 if not even a context of one token fits. Throws the errors of estimate_memory.
std::int64_t default_context(const GgufFile& file, std::span<const Device> devices, const GenerateOptions& options);

/// Returns the sampling options of the file ("general.sampling.*"); missing options are copied from `otherwise`. Logs a
/// warning for unsupported options (mirostat, xtc, or a different order of the samplers). Throws FormatError if an
/// option is out of range.
SamplerOptions sampling_of(const GgufFile& file, SamplerOptions otherwise = {});

}  // namespace tessera
