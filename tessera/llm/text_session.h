// SPDX-License-Identifier: Apache-2.0
// Reads several texts with one KV cache. If a text has a prefix in common with the previous text, the model reads only
// the tokens after the prefix.
#pragma once

#include <span>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/llm/decoder.h"
#include "tessera/llm/fetched_logits.h"
#include "tessera/llm/language_model.h"

namespace tessera {

namespace grammar {
class Matcher;
}

/// Called when the context is full. Returns a shorter token sequence that ends with the answer so far. The model reads
/// this sequence and continues the answer. If the sequence is empty, the answer ends.
using ContextShift = Callback<std::vector<TokenId>(std::span<const TokenId> answer)>;

/// Generates texts with one KV cache. Not movable and not thread-safe. The model must outlive the session.
class TextSession {
 public:
  /// How the KV cache is allocated: in pages as the text grows, or completely in the constructor.
  enum class Memory { in_pages, at_once };
  /// Creates a session for `context` tokens. Throws ArgumentError if `context` is less than 1 or greater than the
  /// model's context length.
  TextSession(const LanguageModel& model, std::int64_t context, DType cache_dtype = DType::f16,
              Memory memory = Memory::in_pages, bool recorded = true);
  TextSession(const TextSession&) = delete;
  ~TextSession();

  /// Reads the tokens of the prompt that are not in the cache, and continues the prompt. Ignores the options `context`,
  /// `cache_dtype` and `recorded`. Throws the errors of LanguageModel::generate. The session remains usable after an
  /// error.
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TextCallback& on_text = {}, const ContextShift& shift_context = {});

  /// The maximum number of tokens in a text.
  std::int64_t context() const { return context_; }
  std::span<const TokenId> tokens() const;  ///< the tokens in the cache
  /// Size of the KV cache in bytes.
  std::uint64_t cache_bytes() const;
  /// Removes all tokens from the cache.
  void clear();

 private:
  /// Reads the tokens of `prompt` that are not in the cache and fetches the logits of the last token, unless cancelled.
  /// Calls `on_read` if `reports` is true. Returns the number of tokens that were read.
  std::int64_t read(std::span<const TokenId> prompt, const GenerateOptions& options, const Sampler& sampler,
                    bool reports);
  /// Prepares the next step.
  Decoder& decoder();
  /// If the device has chosen the next token, starts the step of this token, so that the device continues while the
  /// host waits for the token. Returns false if nothing was started. Otherwise the cache has one more token than
  /// `tokens_`.
  bool step_ahead(const Sampler& sampler);
  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// Returns the state of the options' grammar before the first token; null if there is no grammar. The masks that were
  /// computed for the previous text are reused if the grammar is the same.
  grammar::Matcher* start_grammar(const GenerateOptions& options);
  /// Chooses a token that `matcher` allows; any token if it is null.
  TokenId sample(Sampler& sampler, grammar::Matcher* matcher);
  /// Takes the beginning of the prompt from the file of `prompt_cache`. Returns the number of tokens in the file that
  /// the prompt begins with.
  std::int64_t restore(std::span<const TokenId> prompt, const GenerateOptions& options);
  bool cancelled(const GenerateOptions& options) const { return options.cancelled && options.cancelled(); }
  void reserve(std::int64_t tokens);

  const LanguageModel& model_;
  std::int64_t context_;
  KeyValueCache cache_;
  bool recorded_;
  detail::Owner<Decoder> decoder_;  ///< reset when the cache is reallocated
  std::vector<TokenId> tokens_;
  FetchedLogits logits_[2];  ///< of the last token, and of the token after it if step_ahead() was called
  std::size_t last_ = 0;     ///< index in `logits_` of the last token's logits
  detail::Owner<grammar::Matcher> matcher_;
  std::vector<float> masked_;  ///< logits without the tokens that the grammar excludes
};

}  // namespace tessera
