// SPDX-License-Identifier: Apache-2.0
#include "serve/embedding_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "serve/api_error.h"
#include "serve/embeddings.h"
#include "serve/tokenizer_requests.h"
#include "tessera/base/error.h"

namespace tessera::app {

EmbeddingEngine::EmbeddingEngine(EmbeddingModel model, RequestDefaults defaults, std::int64_t batch)
    : model_(std::move(model)), defaults_(std::move(defaults)), batch_(batch), created_(std::time(nullptr)) {
  const std::int64_t most = model_.context_length();
  defaults_.context = defaults_.context == 0 ? most : std::min(defaults_.context, most);
  defaults_.vocabulary = static_cast<std::int64_t>(model_.tokenizer().size());
  defaults_.width = model_.width();
}

PreparedRequest EmbeddingEngine::prepare_embeddings(const Json& body) const {
  const EmbeddingRequest r = parse_embedding_request(body, defaults_);
  PreparedRequest out = prepare_embedding(r, defaults_);
  for (const RequestPrompt& input : r.inputs) {
    const auto* const text = std::get_if<std::string>(&input);
    out.text.prompts.push_back(text ? model_.tokenizer().encode(*text) : std::get<std::vector<TokenId>>(input));
    const auto count = std::ssize(out.text.prompts.back());
    if (count == 0) throw ApiError(400, "input: a text has no tokens.", "input");
    if (count > defaults_.context)
      throw ApiError(400,
                     fmt::format("input: this model's maximum context length is {} tokens, but a text has {}. Shorten "
                                 "the text.",
                                 defaults_.context, count),
                     "input", "context_length_exceeded");
  }
  return out;
}

std::vector<EmbeddingResult> EmbeddingEngine::embed(const std::vector<std::vector<TokenId>>& texts,
                                                    const std::atomic<bool>& cancelled) const {
  struct Running {
    std::atomic<std::int64_t>& number;
    std::int64_t left;
    ~Running() { number -= left; }  // also after an error
  } running{running_, std::ssize(texts)};
  running_ += running.left;
  const auto advance = [&](std::size_t done, std::size_t) {
    failed_steps_ = 0;
    for (auto i = texts.size() - static_cast<std::size_t>(running.left); i < done; ++i, --running.left, --running_)
      read_tokens_ += std::ssize(texts[i]);
  };
  try {
    return model_.embed(texts,
                        {.pooling = model_.pooling() == Pooling::none ? std::optional(Pooling::mean) : std::nullopt,
                         .batch = batch_,
                         .on_progress = advance,
                         .cancelled = [&] { return cancelled.load(); }});
  } catch (const DeviceError&) {
    ++failed_steps_;
    throw;
  }
}

SchedulerStatistics EmbeddingEngine::statistics() const {
  SchedulerStatistics out;
  out.read_tokens = read_tokens_;
  out.running = running_;
  out.failed_steps = failed_steps_;
  return out;
}

Json EmbeddingEngine::tokenize(const Json& body) const {
  return answer_tokenize(body, model_.tokenizer(), defaults_.context);
}

Json EmbeddingEngine::detokenize(const Json& body) const { return answer_detokenize(body, model_.tokenizer()); }

}  // namespace tessera::app
