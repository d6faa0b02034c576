// SPDX-License-Identifier: Apache-2.0
// The perplexity of a model on a text, which measures how well the model predicts it. Comparable with llama-perplexity
// of llama.cpp.
#pragma once

#include <span>

#include "tessera/base/callback.h"
#include "tessera/llm/language_model.h"

namespace tessera {

/// Options of perplexity().
struct PerplexityOptions {
  std::int64_t context = 512;      ///< length of a window in tokens, at least 4
  std::int64_t batch = 256;        ///< number of tokens that are read at a time
  DType cache_dtype = DType::f16;  ///< The dtype of keys and values.
};

/// The perplexity of a text and the number of tokens that it was computed from.
struct Perplexity {
  std::int64_t windows = 0;  ///< windows that were read
  std::int64_t tokens = 0;   ///< tokens that were scored
  double loss = 0;           ///< mean negative log-probability of a scored token, in nats
  double loss_error = 0;     ///< standard error of `loss`
  /// The perplexity, e^loss.
  double value() const;
  /// The standard error of the perplexity.
  double error() const { return value() * loss_error; }
};

/// Computes the perplexity. As in llama.cpp, the text is divided into windows of `context` tokens, and tokens after the
/// last whole window are ignored. A window is read with an empty cache. If the vocabulary has a begin token that
/// encode() adds, it replaces the first token of each window. The tokens of the second half are scored, except the
/// first.
///
/// `on_window` is called after each window with the result so far. Throws ArgumentError if an option is out of range or
/// the text is shorter than a window.
Perplexity perplexity(const LanguageModel& model, std::span<const TokenId> text, const PerplexityOptions& options = {},
                      const Callback<void(const Perplexity&)>& on_window = {});

}  // namespace tessera
