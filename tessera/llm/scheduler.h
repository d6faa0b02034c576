// SPDX-License-Identifier: Apache-2.0
// Generates texts for many callers on one model. Requests are queued, and their texts are delivered as events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/error.h"
#include "tessera/llm/language_model.h"

namespace tessera {

/// The queue of a Scheduler is full. The caller can submit the request again later.
class QueueFull : public Error {
  using Error::Error;
};

/// The scheduler has begun to process a sequence.
struct TextStarted {
  std::int64_t prompt_tokens = 0;  ///< number of tokens of the prompt
  std::int64_t cached_tokens = 0;  ///< number of these tokens that need not be read, because they are in the cache
};
/// A piece of the generated text.
struct TextPiece {
  std::string text;             ///< whole UTF-8 characters; empty if the tokens complete no text
  std::vector<TokenId> tokens;  ///< the tokens that were generated since the last piece
  /// For each token, if requested: as GenerateResult::log_probabilities.
  std::vector<std::vector<TokenProbability>> log_probabilities;
};
/// The sequence is complete or was cancelled.
struct TextEnded {
  StopReason reason = StopReason::cancelled;  ///< why generation stopped
  std::int64_t tokens = 0;                    ///< number of generated tokens
  double prompt_seconds = 0;                  ///< time for reading the prompt
  double generate_seconds = 0;                ///< time for generating the text
};
/// An error ended the sequence.
struct TextFailed {
  std::string message;  ///< the message of the exception
};
/// The embedding of a prompt.
struct TextEmbedding {
  /// The mean of the states of all tokens after the model's last norm, scaled to unit length.
  std::vector<float> values;
};
/// An event of a sequence. The first event is TextStarted, unless the sequence ends before it is started. The last
/// event is TextEnded or TextFailed.
using TextEvent = std::variant<TextStarted, TextPiece, TextEnded, TextFailed, TextEmbedding>;

/// A request to continue one or several prompts.
struct TextRequest {
  std::vector<std::vector<TokenId>> prompts;  ///< at least one prompt
  /// Number of sequences for each prompt, with the seeds `sampling.seed`, `sampling.seed` + 1, ... Sequence
  /// p * `sequences` + i continues prompt p.
  std::int64_t sequences = 1;
  SamplerOptions sampling;                      ///< how tokens are chosen
  std::int64_t max_tokens = 256;                ///< maximum number of tokens to generate for each sequence
  std::vector<std::string> stop = {};           ///< as GenerateOptions::stop
  std::vector<TokenId> shown = {};              ///< as GenerateOptions::shown
  std::int64_t log_probabilities = -1;          ///< as GenerateOptions::log_probabilities
  std::shared_ptr<const Grammar> grammar = {};  ///< as GenerateOptions::grammar
  /// If true, the embedding of each prompt is delivered as TextEmbedding, and no text is generated. On the CPU, with
  /// weights in a quantised format, its bits do not depend on other requests.
  bool embeds = false;
  /// Prompts share the cache only with earlier texts of the same salt, so that a caller cannot learn from the time of
  /// an answer what others have asked.
  std::uint64_t salt = 0;
  /// Receives the events of all sequences. Called on a thread of the scheduler, so it must not block, and it must not
  /// throw.
  Callback<void(std::int64_t sequence, const TextEvent& event)> on_event;
};

/// Options of Scheduler.
struct SchedulerOptions {
  /// Maximum tokens of prompt and text together; 0: the model's context length. A model with LongRoPE uses its factors
  /// for long texts if this is longer than its original context.
  std::int64_t context = 0;
  std::int64_t parallel = 16;  ///< maximum number of sequences that run at the same time
  /// Maximum number of pages of the KV cache, of 64 tokens each. 0: enough for `parallel` texts of `context` tokens,
  /// but not more than half of the free memory, unless one text needs more. Memory is allocated when it is needed, and
  /// is kept for the begins of later prompts.
  std::int64_t pages = 0;
  std::int64_t batch = 512;        ///< maximum number of tokens in a step, of all sequences together
  DType cache_dtype = DType::f16;  ///< the dtype of keys and values
  std::size_t queue = 64;          ///< maximum number of waiting requests
  /// Prompts use what the cache contains of earlier texts that begin in the same way. Models with recurrent layers read
  /// every prompt from its begin, because the cache has their states only after the last token of a text.
  bool shares_prefixes = true;
};

/// Counters of a Scheduler since its construction, and its current state.
struct SchedulerStatistics {
  std::int64_t queued = 0;            ///< number of requests that wait
  std::int64_t running = 0;           ///< number of sequences in progress
  std::int64_t read_tokens = 0;       ///< prompt tokens that were read
  std::int64_t cached_tokens = 0;     ///< prompt tokens that were found in the cache
  std::int64_t generated_tokens = 0;  ///< generated tokens
  /// Number of times that a sequence gave its pages to others, and was read again later.
  std::int64_t preempted = 0;
  /// Number of steps that an error of a device has ended since the last token was computed. Their sequences failed.
  std::int64_t failed_steps = 0;
  std::int64_t pages = 0;         ///< maximum number of pages of the KV cache
  std::int64_t used_pages = 0;    ///< pages that sequences use
  std::int64_t shared_pages = 0;  ///< pages that more than one sequence uses
};

/// Runs requests on a model. The functions are thread-safe.
///
/// Each step of the model reads one token of every sequence that generates, and then parts of prompts, oldest first.
/// Sequences whose texts begin in the same way share pages of the KV cache, and a prompt reads only what the cache does
/// not contain. If pages run out, the sequence that started last waits, and is read again later. On the CPU, with
/// weights in a quantised format, the same request gives the same tokens and log probabilities alone and together with
/// others; elsewhere it does unless two tokens are almost equally likely.
class Scheduler {
 public:
  /// Identifies a request.
  using RequestId = std::uint64_t;

  /// Starts a scheduler. The model must outlive it. Throws ArgumentError if an option is out of range.
  explicit Scheduler(const LanguageModel& model, SchedulerOptions options = {});
  Scheduler(const Scheduler&) = delete;
  /// Cancels all requests, delivers their last events, and waits for the scheduler's thread.
  ~Scheduler();

  /// Adds a request to the queue. Events may be delivered before submit() returns. Throws ArgumentError if an option is
  /// out of range, or if a prompt is empty, contains an unknown token or does not fit in the context; the message
  /// contains both lengths. Throws QueueFull if too many requests are waiting.
  RequestId submit(TextRequest request);
  /// Ends a request. Takes effect between two steps of the model. The events that are still outstanding are TextEnded
  /// with StopReason::cancelled. Does nothing if the request has already ended.
  void cancel(RequestId id);
  /// Cancels all requests.
  void cancel_all();

  /// Maximum number of tokens of a prompt and its text.
  std::int64_t context() const;
  /// The current counters.
  SchedulerStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
