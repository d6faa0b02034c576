// SPDX-License-Identifier: Apache-2.0
// One text after the other on one cache: of a text that begins as the one before, only the rest is read.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tessera/llm/decoder.h"
#include "tessera/llm/language_model.h"

namespace tessera {

/// What to read in place of all so far when the context is full: something shorter, of which the answer so far is the
/// end. Nothing: the answer ends.
using ContextShift = std::function<std::vector<TokenId>(std::span<const TokenId> answer)>;

/// Neither moved nor used by several threads at once. The model outlives it.
class TextSession {
 public:
  /// When the memory for keys and values is allocated.
  enum class Memory { in_pages, at_once };
  /// Room for `context` tokens, whose memory is taken in pages as texts grow, or at once. ArgumentError: fewer than 1
  /// token, or more than the model was made for.
  TextSession(const LanguageModel& model, std::int64_t context, DType cache_dtype = DType::f16,
              Memory memory = Memory::in_pages, bool recorded = true);
  TextSession(const TextSession&) = delete;

  /// Reads what is new of the prompt, and continues it. Of the options, `context`, `cache_dtype` and `recorded` do not
  /// matter. Errors of LanguageModel::generate; the session can go on after any.
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TextCallback& on_text = {}, const ContextShift& shift_context = {});

  /// Tokens that fit.
  std::int64_t context() const { return context_; }
  std::span<const TokenId> tokens() const { return tokens_; }  ///< those in the cache
  /// Bytes of the keys and values.
  std::uint64_t cache_bytes() const { return cache_.bytes(); }
  /// Forgets all that was read.
  void clear();

 private:
  /// Makes the cache hold `prompt` and gives its last logits, unless cancelled; gives how many tokens were read.
  std::int64_t read(std::span<const TokenId> prompt, const GenerateOptions& options);
  bool cancelled(const GenerateOptions& options) const { return options.cancelled && options.cancelled(); }
  void reserve(std::int64_t tokens);

  const LanguageModel& model_;
  std::int64_t context_;
  KeyValueCache cache_;
  bool recorded_;
  std::optional<Decoder> decoder_;  ///< of this memory of the cache
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
};

}  // namespace tessera
