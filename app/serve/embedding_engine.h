// SPDX-License-Identifier: Apache-2.0
// The model of a server that computes embeddings and generates no text.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "serve/answer.h"
#include "serve/openai_request.h"
#include "tessera/llm/embedding_model.h"

namespace tessera::app {

/// A loaded embedding model. All functions are thread-safe.
class EmbeddingEngine {
 public:
  /// `defaults.context` is the maximum number of tokens of a text; 0, or more than the model accepts: as many as it
  /// accepts. `batch` is the maximum number of tokens in a step, unless a text is longer.
  EmbeddingEngine(EmbeddingModel model, RequestDefaults defaults, std::int64_t batch);

  /// Parses a request and tokenises its texts. Takes time in proportion to the texts. Throws ApiError.
  PreparedRequest prepare_embeddings(const Json& body) const;
  /// Returns the embeddings of texts, or only the first ones if `cancelled` becomes true, which is read before each
  /// step of the model and each layer of an encoder. Throws the errors of EmbeddingModel::embed.
  std::vector<EmbeddingResult> embed(const std::vector<std::vector<TokenId>>& texts,
                                     const std::atomic<bool>& cancelled) const;

  Json tokenize(const Json& body) const;    ///< The answer of /tokenize. Throws ApiError.
  Json detokenize(const Json& body) const;  ///< The answer of /detokenize. Throws ApiError.
  /// Number of tokens that were read, of texts in progress, and of steps that an error of a device has ended since the
  /// last embedding was computed. The other counters are 0.
  SchedulerStatistics statistics() const;
  const RequestDefaults& defaults() const { return defaults_; }
  std::int64_t created() const { return created_; }  ///< When the model was loaded, in seconds since 1970.

 private:
  EmbeddingModel model_;
  RequestDefaults defaults_;
  std::int64_t batch_, created_;
  mutable std::atomic<std::int64_t> read_tokens_ = 0, running_ = 0, failed_steps_ = 0;
};

}  // namespace tessera::app
