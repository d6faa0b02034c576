// SPDX-License-Identifier: Apache-2.0
#include "tessera/pack/exercise.h"

#include <algorithm>
#include <set>
#include <span>

#include "tessera/llm/batch_decoder.h"
#include "tessera/llm/decoder.h"
#include "tessera/llm/embedding_model.h"
#include "tessera/llm/paged_cache.h"
#include "tessera/ops/cross_entropy.h"
#include "tessera/ops/dry_routing.h"
#include "tessera/ops/top_k.h"

namespace tessera {

namespace {

/// The numbers of tokens to read at once, up to `most`. Products use different kernels for small numbers of rows, and
/// for each multiple of 64 rows.
std::vector<std::int64_t> row_counts(std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 1; n <= most; n += n < 40 ? 1 : n < 128 ? 8 : 64) all.push_back(n);
  if (most > 0 && all.back() != most) all.push_back(most);
  return all;
}

/// The lengths of caches, up to `most`. Attention is divided into parts, whose number depends on the length.
std::vector<std::int64_t> capacities(std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 8; n < most; n *= 2) all.push_back(n);
  all.push_back(most);
  return all;
}

/// Chooses tokens for the first rows of logits. The second row may need kernels for unaligned memory.
void select_tokens(const Array& logits) {
  const std::int64_t most = std::min(logits.shape(1), ops::most_top_k(logits.device()));
  for (std::int64_t row = 0; row < std::min<std::int64_t>(logits.shape(0), 2); ++row) {
    const Array one = logits.slice(0, row, row + 1);
    ops::finite_argmax(one);
    for (std::int64_t k = 2; k < most; k *= 2) ops::top_k(one, k);
    ops::top_k(one, most);
  }
}

/// Reads prompts and generates text with one cache, as TextSession does.
void exercise_text(const Llama& model, std::int64_t capacity, DType dtype, std::int64_t batch) {
  KeyValueCache cache = model.make_cache(capacity, dtype);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch), 0);
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

/// Reads prompts whose tokens are divided among the experts in different ways.
void exercise_experts(const Llama& model, std::int64_t batch) {
  const LlamaConfig& c = model.config();
  if (c.experts < 2) return;
  KeyValueCache cache = model.make_cache(batch);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch), 0);
  const std::vector<std::int64_t> counts = row_counts(batch);  // of an expert
  for (std::size_t at = 0; at < counts.size();) {
    std::size_t end = at;
    for (std::int64_t left = batch * c.used_experts; end < counts.size() && counts[end] <= left; ++end) {
      if (static_cast<std::int64_t>(end - at) == c.experts - 1) break;
      left -= counts[end];
    }
    const auto some = std::span(counts).subspan(at, end - at);
    const ops::DryRouting routing(some);
    cache.truncate(0);
    model.forward(tokens, cache).eval();
    at = end;
  }
}

/// Computes the losses of the tokens of a text, as perplexity() does.
void exercise_losses(const Llama& model, DType dtype, std::int64_t batch) {
  KeyValueCache cache = model.make_cache(batch, dtype);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch), 0);
  for (const std::int64_t n : row_counts(batch)) {
    cache.truncate(0);
    const Array logits = model.forward(std::span(tokens).first(static_cast<std::size_t>(n)), cache, true);
    ops::cross_entropy_losses(logits, Array::zeros({n}, DType::i32, logits.device()), std::nullopt, 0).eval();
  }
}

/// Copies the keys and values of the first tokens of a cache, as save_prompt() and KeyValueCache::grow() do.
void exercise_copies(const Llama& model, std::int64_t capacity, DType dtype) {
  KeyValueCache cache = model.make_cache(capacity, dtype);
  cache.skip(capacity - 1);
  for (const Array& a : cache.arrays()) a.slice(1, 0, cache.length()).as_contiguous().eval();
  cache.grow(2 * capacity);
}

/// Reads several texts together, as Scheduler does.
class TextsExercise {
 public:
  TextsExercise(const Llama& model, std::int64_t context, DType dtype, const ExerciseOptions& options)
      : model_(model),
        context_(context),
        parallel_(options.parallel),
        batch_(std::min(std::max(options.batch, parallel_), context * parallel_)),
        tokens_(static_cast<std::size_t>(context), 0),
        cache_(model.config(), (context + ops::page_positions - 1) / ops::page_positions * parallel_,
               model.layer_devices(), context, dtype),
        decoder_(model, cache_) {}

  void run() {
    for (const std::int64_t n : row_counts(batch_))
      for (const bool embeds : {false, true}) read(prompts_of(n), embeds);
    for (const std::int64_t n : row_counts(parallel_)) {
      const Lengths tokens(static_cast<std::size_t>(n), 1);
      read(tokens, false), generate(tokens);
    }
    copy_page();
    // Kernels for large arrays compute positions with 64 bits.
    open(Lengths(static_cast<std::size_t>(parallel_), context_));
    for (const std::int64_t n : {std::int64_t{1}, batch_}) read(prompts_of(n), false);
    generate({1});
  }

 private:
  using Lengths = std::vector<std::int64_t>;  // numbers of tokens
  using Sequences = std::vector<PagedCache::Sequence>;

  /// The lengths of the fewest texts with `tokens` tokens together.
  Lengths prompts_of(std::int64_t tokens) const {
    Lengths all;
    for (; tokens > 0; tokens -= all.back()) all.push_back(std::min(tokens, context_));
    return all;
  }
  /// Empty texts, with pages for this number of tokens each.
  Sequences open(const Lengths& lengths) {
    Sequences all;
    for (const std::int64_t n : lengths) all.push_back(cache_.open()), cache_.reserve(all.back(), n);
    return all;
  }
  std::vector<SequencePiece> pieces_of(Sequences& sequences, const Lengths& lengths) const {
    std::vector<SequencePiece> pieces;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      pieces.push_back({&sequences[i], std::span(tokens_).first(static_cast<std::size_t>(lengths[i]))});
    return pieces;
  }
  void read(const Lengths& lengths, bool embeds) {
    Sequences sequences = open(lengths);
    std::vector<SequencePiece> pieces = pieces_of(sequences, lengths);
    std::vector<float> states;
    for (SequencePiece& p : pieces)
      if (embeds) p.logits = false, p.states = &states;
    const Array logits = model_.forward(pieces, cache_);
    if (!embeds) select_tokens(logits);
  }
  void generate(const Lengths& tokens) {
    Sequences sequences = open(tokens);
    for (int step = 0; step < 3; ++step) {  // see exercise_text
      for (PagedCache::Sequence& s : sequences) cache_.reserve(s, 1);
      if (const auto pieces = pieces_of(sequences, tokens); decoder_.takes(pieces))
        select_tokens(decoder_.step(pieces));
    }
  }
  /// Two texts share a page until one of them grows.
  void copy_page() {
    Sequences first = open({1});
    model_.forward(pieces_of(first, {1}), cache_);
    PagedCache::Sequence second = cache_.fork(first[0]);
    cache_.reserve(second, 1);
  }

  const Llama& model_;
  const std::int64_t context_, parallel_, batch_;
  const std::vector<std::int32_t> tokens_;
  PagedCache cache_;
  BatchDecoder decoder_;
};

void exercise_language_model(const GgufFile& file, Device device, const ExerciseOptions& options) {
  constexpr std::int64_t usual = 8192;  // `tessera serve` uses longer contexts only on request
  const Llama model = Llama::load(file, device);
  model.prepare();
  const std::int64_t context = model.config().context_length,
                     batch = std::clamp<std::int64_t>(context - 1, 1, options.batch);
  exercise_experts(model, batch);
  for (const DType dtype : options.cache_dtypes) {
    for (const std::int64_t capacity : capacities(context)) {
      exercise_text(model, capacity, dtype, batch);
      exercise_copies(model, capacity, dtype);
    }
    exercise_losses(model, dtype, batch);
    for (const std::int64_t most : std::set{std::min(context, usual), context})
      TextsExercise(model, most, dtype, options).run();
  }
}

void exercise_embedding_model(const GgufFile& file, Device device, const ExerciseOptions& options) {
  const EmbeddingModel model = EmbeddingModel::load(file, std::span(&device, 1));
  EmbeddingOptions how;
  how.batch = options.batch;
  how.normalize = false;  // the states are zeros
  std::vector<std::int64_t> lengths = row_counts(std::min(options.batch, model.context_length()));
  lengths.push_back(model.context_length());  // encoders read a long text in one step
  for (const std::int64_t n : lengths) {
    const std::vector<std::vector<TokenId>> texts(1, std::vector<TokenId>(static_cast<std::size_t>(n), 0));
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
