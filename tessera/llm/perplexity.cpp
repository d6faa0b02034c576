// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/perplexity.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/llm/estimate.h"
#include "tessera/ops/cross_entropy.h"

namespace tessera {
namespace {

/// Reads tokens and calls `use` with each batch's begin and logits. Without logits, `use` is not called.
template <class Use>
void read_batches(const Llama& model, std::span<const TokenId> tokens, std::int64_t batch, KeyValueCache& cache,
                  bool logits, const Use& use) {
  for (std::size_t at = 0; at < tokens.size();) {
    const auto piece = tokens.subspan(at, std::min(static_cast<std::size_t>(batch), tokens.size() - at));
    const Array out = model.forward(piece, cache, logits);
    if (logits)
      use(at, out);
    else
      out.eval();
    at += piece.size();
  }
}

/// The sum and the sum of squares of the losses.
struct Sums {
  double loss = 0, square = 0;
};

/// Reads a window and adds the losses of its second half.
void score(const Llama& model, std::span<const TokenId> window, std::int64_t batch, KeyValueCache& cache, Sums& sums) {
  const std::size_t first = window.size() / 2;
  cache.truncate(0);
  read_batches(model, window.first(first), batch, cache, false, [](std::size_t, const Array&) {});
  const auto scored = window.subspan(first);
  read_batches(model, scored.first(scored.size() - 1), batch, cache, true, [&](std::size_t at, const Array& logits) {
    const auto rows = static_cast<std::size_t>(logits.shape(0));
    const Array targets = Array::from(scored.subspan(at + 1, rows), Shape{logits.shape(0)}, logits.device());
    for (const float loss : ops::cross_entropy_losses(logits, targets, std::nullopt, 0).to_vector<float>())
      sums.loss += loss, sums.square += static_cast<double>(loss) * loss;
  });
}

}  // namespace

double Perplexity::value() const { return std::exp(loss); }

Perplexity perplexity(const LanguageModel& model, std::span<const TokenId> text, const PerplexityOptions& options,
                      const Callback<void(const Perplexity&)>& on_window) {
  require_context("perplexity", options.context, model.model().config().context_length);
  if (options.context < 4 || options.batch < 1)
    fail<ArgumentError>(
        {.operation = "perplexity",
         .with = {{"context", std::to_string(options.context)}, {"batch", std::to_string(options.batch)}},
         .wrong = "the context must be at least 4 tokens, and the batch at least 1"});
  const auto length = static_cast<std::size_t>(options.context);
  if (text.size() < length)
    fail<ArgumentError>({.operation = "perplexity",
                         .with = {{"tokens", std::to_string(text.size())}, {"context", std::to_string(length)}},
                         .wrong = "the text is shorter than a window",
                         .remedy = "Use a longer text, or decrease the context (--ctx)"});
  const Tokenizer& tokenizer = model.tokenizer();
  KeyValueCache cache = model.model().make_cache(options.context, options.cache_dtype);
  Sums sums;
  Perplexity result;
  for (std::size_t at = 0; at + length <= text.size(); at += length) {
    std::vector<TokenId> window(text.begin() + static_cast<std::ptrdiff_t>(at),
                                text.begin() + static_cast<std::ptrdiff_t>(at + length));
    if (tokenizer.adds_bos()) window.front() = *tokenizer.bos();
    score(model.model(), window, options.batch, cache, sums);
    ++result.windows;
    result.tokens += options.context - options.context / 2 - 1;
    const auto n = static_cast<double>(result.tokens);
    result.loss = sums.loss / n;
    const double variance = std::max(0.0, sums.square / n - result.loss * result.loss);
    result.loss_error = n > 1 ? std::sqrt(variance / (n - 1)) : 0;
    if (on_window) on_window(result);
  }
  return result;
}

}  // namespace tessera
