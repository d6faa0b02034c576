// SPDX-License-Identifier: Apache-2.0
#include "tessera/pack/exercise.h"

#include <algorithm>

#include "tessera/llm/decoder.h"
#include "tessera/llm/embedding_model.h"
#include "tessera/ops/top_k.h"

namespace tessera {

namespace {

/// The numbers of tokens to read at once, up to `most`. Products use different kernels for small numbers of rows, and
/// tiles of up to 256 rows.
std::vector<std::int64_t> row_counts(std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 1; n <= most; n += n < 40 ? 1 : n < 128 ? 8 : 32) all.push_back(n);
  for (std::int64_t n = 64; n <= most; n *= 2) all.push_back(n);
  if (most > 0) all.push_back(most);
  return all;
}

void select_tokens(const Array& logits) {
  ops::finite_argmax(logits);
  const std::int64_t most = std::min(logits.size(), ops::most_top_k(logits.device()));
  for (std::int64_t k = 2; k < most; k *= 2) ops::top_k(logits, k);
  ops::top_k(logits, most);
}

void exercise_language_model(const GgufFile& file, Device device, const ExerciseOptions& options) {
  const Llama model = Llama::load(file, device);
  model.prepare();
  const std::int64_t context = model.config().context_length, batch = std::min(options.batch, context - 1);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch), 0);
  for (const DType dtype : options.cache_dtypes)
    // Attention of one token is divided into parts, whose number depends on the length of the cache.
    for (std::int64_t capacity = std::min<std::int64_t>(context, 8); capacity <= context;
         capacity = capacity == context ? context + 1 : std::min(2 * capacity, context)) {
      KeyValueCache cache = model.make_cache(capacity, dtype);
      for (const std::int64_t n : row_counts(std::min(batch, capacity - 4))) {
        cache.truncate(0);
        const auto some = std::span(tokens).first(static_cast<std::size_t>(n));
        model.forward(some, cache).eval();
        if (cache.length() + n <= capacity) model.forward(some, cache).eval();  // with tokens before
      }
      for (const bool recorded : {true, false})
        for (const std::int64_t before : {std::int64_t{1}, capacity - 8}) {
          cache.truncate(0), cache.skip(std::clamp<std::int64_t>(before, 0, capacity - 4));
          Decoder decoder(model, cache, recorded);
          // The second step is recorded, and the third one verifies the recording.
          for (int step = 0; step < 3; ++step) select_tokens(decoder.step(0));
        }
    }
}

void exercise_embedding_model(const GgufFile& file, Device device, const ExerciseOptions& options) {
  const EmbeddingModel model = EmbeddingModel::load(file, std::span(&device, 1));
  EmbeddingOptions how;
  how.batch = options.batch;
  const std::int64_t most = std::min(options.batch, model.context_length());
  for (const std::int64_t n : row_counts(most)) {
    const std::vector<std::vector<TokenId>> texts(1, std::vector<TokenId>(static_cast<std::size_t>(n), 0));
    how.normalize = false;  // the states are zeros
    model.embed(texts, how);
  }
}

}  // namespace

void exercise(const GgufFile& file, Device device, const ExerciseOptions& options) {
  if (is_embedding_model(file))
    exercise_embedding_model(file, device, options);
  else
    exercise_language_model(file, device, options);
}

}  // namespace tessera
