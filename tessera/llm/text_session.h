// SPDX-License-Identifier: Apache-2.0
// Reads several texts with one cache: if a text has a prefix in common with the previous one, only the rest is read.
#pragma once

#include <span>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/llm/decoder.h"
#include "tessera/llm/language_model.h"

namespace tessera {

/// Called when the context is full. Returns a shorter token sequence that ends with the answer so far, to be read
/// instead; empty: the answer ends.
using ContextShift = Callback<std::vector<TokenId>(std::span<const TokenId> answer)>;

/// Neither movable nor thread-safe. The model must outlive it.
class TextSession {
 public:
  /// When the memory of the KV cache is allocated.
  enum class Memory { in_pages, at_once };
  /// A session for `context` tokens, whose memory is allocated in pages as texts grow, or at once. Throws ArgumentError
  /// if `context` is less than 1 or more than the model's context length.
  TextSession(const LanguageModel& model, std::int64_t context, DType cache_dtype = DType::f16,
              Memory memory = Memory::in_pages, bool recorded = true);
  TextSession(const TextSession&) = delete;
  ~TextSession();

  /// Reads the new part of the prompt and continues it. Ignores the options `context`, `cache_dtype` and `recorded`.
  /// Throws the errors of LanguageModel::generate; the session remains usable.
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TextCallback& on_text = {}, const ContextShift& shift_context = {});

  /// The maximum number of tokens.
  std::int64_t context() const { return context_; }
  std::span<const TokenId> tokens() const;  ///< the tokens in the cache
  /// Size of the KV cache in bytes.
  std::uint64_t cache_bytes() const;
  /// Drops all tokens.
  void clear();

 private:
  /// Makes the cache contain `prompt` and computes its last logits, unless cancelled. Returns the number of tokens that
  /// were read.
  std::int64_t read(std::span<const TokenId> prompt, const GenerateOptions& options);
  bool cancelled(const GenerateOptions& options) const { return options.cancelled && options.cancelled(); }
  void reserve(std::int64_t tokens);

  const LanguageModel& model_;
  std::int64_t context_;
  KeyValueCache cache_;
  bool recorded_;
  Owner<Decoder> decoder_;  ///< for the current memory of the cache
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
};

}  // namespace tessera
