// SPDX-License-Identifier: Apache-2.0
// Builds the answer to a request, in the format of OpenAI's API, from the events of the scheduler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/json.h"
#include "tessera/llm/chat.h"
#include "tessera/llm/scheduler.h"
#include "tessera/llm/tool_call_stream.h"

namespace tessera::app {

enum class AnswerKind : std::uint8_t { chat, completion, embeddings };

/// What an answer depends on.
struct AnswerSettings {
  AnswerKind kind = AnswerKind::chat;
  std::string id, model;
  std::int64_t created = 0;  ///< seconds since 1970
  bool stream = false, include_usage = false;
  std::size_t prompts = 1, sequences = 1;  ///< total numbers; sequences is a multiple of prompts
  const Tokenizer* tokenizer = nullptr;
  bool log_probabilities = false;

  // Of a chat
  std::optional<std::size_t> thinking;                  ///< ChatPrompt::thinking
  std::optional<std::vector<ToolCallForm>> call_forms;  ///< set if the model may call tools
  std::vector<std::string> call_ids;                    ///< ids of earlier calls, which new calls must not have
  bool parallel_calls = true;

  // Of a completion
  std::vector<std::string> echo;  ///< for each sequence, the text that precedes it; may be empty

  // Of embeddings
  bool is_base64 = false;  ///< as EmbeddingRequest::is_base64
};

/// A request that is ready to be submitted.
struct PreparedRequest {
  TextRequest text;  ///< without the callback
  AnswerSettings answer;
};

/// The answer to one request. Contains all its sequences.
class Answer {
 public:
  explicit Answer(AnswerSettings settings);

  /// Adds an event. For a stream, returns the chunks that can be sent now.
  std::vector<Json> take(std::int64_t sequence, const TextEvent& event);
  /// True if all sequences are complete.
  bool done() const { return ended_ == settings_.sequences; }
  /// Set if a sequence failed: the message.
  const std::optional<std::string>& error() const { return error_; }
  /// True if a sequence was cancelled.
  bool cancelled() const { return cancelled_; }

  Json result() const;       ///< the complete answer, if it is not a stream
  Json usage_chunk() const;  ///< the last chunk of a stream with `include_usage`

  // Counters for the log and the metrics
  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  std::int64_t cached_tokens() const { return cached_tokens_; }
  std::int64_t generated_tokens() const { return generated_tokens_; }
  /// The reasons why the sequences ended, separated by commas.
  std::string finish_reasons() const;
  const AnswerSettings& settings() const { return settings_; }

 private:
  struct Sequence {
    explicit Sequence(const AnswerSettings& settings);
    ThinkingSplitter thinking_splitter;
    std::optional<ToolCallSplitter> call_splitter;
    ToolCallStream call_stream;
    bool at_start = true;
    std::string text, thinking, finish_reason;
    std::vector<ToolCall> calls;
    std::vector<float> embedding;
    Json log_probabilities;   ///< those that are not sent yet
    std::size_t offset = 0;   ///< characters of the text of a completion
    std::int64_t tokens = 0;  ///< generated tokens
  };
  void start(Sequence& s, std::size_t index, const TextStarted& event, std::vector<Json>& chunks);
  void add(Sequence& s, std::size_t index, const TextPiece& piece, std::vector<Json>& chunks);
  void end(Sequence& s, std::size_t index, const TextEnded& event, std::vector<Json>& chunks);
  void add_parts(Sequence& s, std::size_t index, ThinkingSplitter::Parts parts, std::vector<Json>& chunks);
  void add_calls(Sequence& s, std::size_t index, const std::vector<ToolCallDelta>& deltas, std::vector<Json>& chunks);
  void end_calls(Sequence& s, std::size_t index, std::vector<Json>& chunks);
  void add_log_probabilities(Sequence& s, const TextPiece& piece);
  Json chat_log_probability(const std::vector<TokenProbability>& of_token) const;
  void add_completion_log_probability(Sequence& s, const std::vector<TokenProbability>& of_token) const;
  std::string token_bytes(TokenId id) const;
  Json take_log_probabilities(Sequence& s) const;
  Json head(const char* object) const;
  Json chunk(Sequence& s, std::size_t index, Json content) const;
  Json embeddings() const;
  Json usage() const;
  Json timings() const;

  bool is_chat() const { return settings_.kind == AnswerKind::chat; }

  AnswerSettings settings_;
  std::vector<Sequence> sequences_;
  std::size_t ended_ = 0;
  std::optional<std::string> error_;
  bool cancelled_ = false;
  std::int64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  double prompt_seconds_ = 0, generate_seconds_ = 0;
};

}  // namespace tessera::app
