// SPDX-License-Identifier: Apache-2.0
// A conversation with a model, turn by turn: each answer costs the reading of what is new.
#pragma once

#include <functional>
#include <string>

#include "tessera/llm/chat.h"
#include "tessera/llm/text_session.h"

namespace tessera {

/// What is done when a conversation gets longer than the context.
enum class WhenFull : std::uint8_t {
  refuse,  ///< an answer ends, and a question that does not fit is an ArgumentError
  shift,   ///< the oldest turns behind the system prompt are left out of what the model reads
};

/// Options of ChatSession.
struct ChatOptions {
  ChatPromptOptions prompt;               ///< How the conversation is written.
  GenerateOptions generate;               ///< How answers are generated.
  std::int64_t context = 0;               ///< tokens at most; 0: what the model was made for, at most 8,192
  WhenFull when_full = WhenFull::refuse;  ///< What happens when the context is full.
};

/// Gets what is answered as it comes, whole characters only: some of the thoughts, then some of the text; false ends
/// it.
using AnswerCallback = std::function<bool(const ThinkingSplitter::Parts&)>;

/// An answer, and how it was made.
struct ChatAnswer {
  ChatMessage message;        ///< The answer as a message of the conversation.
  GenerateResult result;      ///< Tokens, times and the reason why it ended.
  std::int64_t left_out = 0;  ///< messages that the model did not read any more, of all
};

/// A conversation with a model.
class ChatSession {
 public:
  /// The model outlives it. ArgumentError: a number of the options is out of its range, or there are tools and the
  /// template knows none.
  ChatSession(const LanguageModel& model, ChatTemplate chat_template, ChatOptions options = {});

  /// The conversation so far; answers are appended to it. What is changed here is seen at the next answer.
  Conversation conversation;

  /// Answers the conversation and appends the answer, also one that was cut short, but not one that was cancelled
  /// before its first character. With tools (`ChatPromptOptions::tools`) the calls that the model writes are the
  /// message's, and not in its text; each has an id. ArgumentError: the conversation does not fit into the context, or
  /// the template refuses it; errors of the model. Nothing is appended then.
  ChatAnswer answer(const AnswerCallback& on_parts = {});
  /// What the template makes of the conversation, and the ArgumentError if it does not fit: as `answer` begins.
  ChatPrompt prompt() const;

  /// The options, which apply from the next answer on.
  ChatOptions& options() { return options_; }
  /// The template by which the conversation is written.
  const ChatTemplate& chat_template() const { return template_; }
  /// The number of tokens that fit.
  std::int64_t context() const { return session_.context(); }
  /// The model.
  const LanguageModel& model() const { return model_; }
  /// The session below, with the tokens read so far.
  const TextSession& text() const { return session_; }

 private:
  ChatPrompt prompt_without(std::size_t left_out) const;
  void assign_call_ids(std::vector<ToolCall>& calls) const;
  void require_fits(const ChatPrompt& prompt) const;
  /// The first message behind those that stand at the start of each prompt.
  std::size_t first_turn() const;

  const LanguageModel& model_;
  ChatTemplate template_;
  ChatOptions options_;
  TextSession session_;
  Conversation left_out_;  ///< what the last answer did not read
};

/// What ends and parts an answer besides the file's end tokens: the text that ends a turn where the vocabulary has no
/// token for it, and the marks of thinking, with `tools` also those of calls, that are control tokens. Warns of tokens
/// that a built-in template wants and the vocabulary does not have.
void set_chat_ends(GenerateOptions& options, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                   bool tools = false);

/// The tokens of a conversation that are chosen when none are named: what the model was made for and memory is there
/// for, at most 8,192. Errors of estimate_memory; 1 if not even that fits, which loading then refuses.
std::int64_t default_context(const GgufFile& file, std::span<const Device> devices, const GenerateOptions& options);

/// A file's own wishes for drawing tokens ("general.sampling.*") in place of those of `otherwise`. FormatError: one of
/// them is out of its range. What is wished and not there (mirostat, xtc, another order) is warned of.
SamplerOptions sampling_of(const GgufFile& file, SamplerOptions otherwise = {});

}  // namespace tessera
