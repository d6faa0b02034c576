// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/embedding_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/hub/metadata.h"
#include "tessera/llm/paged_cache.h"

namespace tessera {
namespace {

constexpr std::int64_t rank_pooling = 4;
constexpr std::int64_t usual_text = 512;  ///< in tokens; memory is checked for such texts when a model is loaded

std::string pooling_key(const GgufFile& file) {
  return file.get_or<std::string>("general.architecture", "") + ".pooling_type";
}

std::optional<std::vector<float>> llama_states(const Llama& model, std::span<const std::vector<TokenId>> texts,
                                               std::int64_t batch, const Callback<bool()>& cancelled) {
  std::int64_t pages = 0, longest = 0;
  for (const auto& text : texts) {
    pages += (std::ssize(text) + ops::page_positions - 1) / ops::page_positions;
    longest = std::max<std::int64_t>(longest, std::ssize(text));
  }
  PagedCache cache(model.config(), pages, model.layer_devices(), model.config().context_length, DType::f32);
  std::vector<PagedCache::Sequence> sequences;
  for (const auto& text : texts) {
    sequences.push_back(cache.open());
    if (!cache.reserve(sequences.back(), std::ssize(text)))
      fail<OutOfMemory>({.operation = "embed",
                         .with = {{"tokens", std::to_string(text.size())}},
                         .wrong = "there is no memory for the keys and values of the texts",
                         .remedy = "Use a smaller batch"});
  }
  std::vector<std::vector<float>> states(texts.size()), step(texts.size());
  for (std::int64_t at = 0; at < longest; at += batch) {
    if (cancelled && cancelled()) return std::nullopt;
    std::vector<SequencePiece> pieces;
    std::vector<std::size_t> which;
    for (std::size_t s = 0; s < texts.size(); ++s) {
      const std::int64_t count = std::min(batch, std::ssize(texts[s]) - at);
      if (count <= 0) continue;
      pieces.push_back({&sequences[s],
                        std::span(texts[s]).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)),
                        false, &step[s]});
      which.push_back(s);
    }
    model.forward(pieces, cache);
    for (const std::size_t s : which) states[s].insert(states[s].end(), step[s].begin(), step[s].end());
  }
  std::vector<float> all;
  for (const auto& of_text : states) all.insert(all.end(), of_text.begin(), of_text.end());
  return all;
}

std::vector<float> pooled(std::span<const float> states, std::size_t width, Pooling pooling) {
  if (pooling == Pooling::none) return {states.begin(), states.end()};
  if (pooling == Pooling::cls) states = states.first(width);
  if (pooling == Pooling::last) states = states.last(width);
  std::vector<double> sum(width);
  for (std::size_t i = 0; i < states.size(); ++i) sum[i % width] += static_cast<double>(states[i]);
  std::vector<float> out;
  for (const double v : sum)
    out.push_back(static_cast<float>(v * static_cast<double>(width) / static_cast<double>(states.size())));
  return out;
}

/// Checks a vector, and scales it to the length 1 unless `normalize` is false.
void finish(std::span<float> v, std::size_t text, bool normalize) {
  double squares = 0;
  for (const float x : v) squares += static_cast<double>(x) * static_cast<double>(x);
  if (!std::isfinite(squares) || (normalize && squares == 0))
    fail<ArgumentError>({.operation = "embed",
                         .with = {{"text", std::to_string(text)}},
                         .wrong = "the states of the model are zero or not finite"});
  for (float& x : v)
    if (normalize) x = static_cast<float>(static_cast<double>(x) / std::sqrt(squares));
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  switch (pooling) {
    case Pooling::none: return "none";
    case Pooling::mean: return "mean";
    case Pooling::cls: return "cls";
    default: return "last";
  }
}

std::string to_string(const EmbeddingResult& r) {
  return fmt::format("{}{}, {}", count_noun(r.tokens, "token"), r.truncated ? " (shortened)" : "",
                     count_noun(r.values.size(), "number"));
}

Pooling read_pooling(const GgufFile& file) {
  const std::string key = pooling_key(file);
  const auto number = file.get_or<std::int64_t>(key, static_cast<std::int64_t>(Pooling::mean));
  if (number < 0 || number > static_cast<std::int64_t>(Pooling::last))
    fail<FormatError>({.operation = "load model",
                       .with = {{"file", file.name()}, {"key", key}},
                       .wrong = number == rank_pooling
                                    ? "the pooling type is rank: models that rank pairs of texts are not supported"
                                    : fmt::format("the pooling type {} is unknown", number),
                       .remedy = "Supported types: none (0), mean (1), cls (2) and last (3)"});
  return static_cast<Pooling>(number);
}

std::int64_t read_max_tokens(const GgufFile& file) {
  const bool generates = find_architecture(file.get<std::string>("general.architecture")) != nullptr;
  const std::int64_t context =
      generates ? read_llama_config(file).context_length : read_encoder_config(file).context_length;
  const std::string key(hub::max_tokens_key);
  const auto most = file.get_or<std::int64_t>(key, context);
  if (most < 1 || most > std::int64_t{1} << 30)
    fail<FormatError>({.operation = "load model",
                       .with = {{"file", file.name()}, {"key", key}},
                       .wrong = fmt::format("the maximum number of tokens of a text is {}", most),
                       .remedy = "Write the file with a number from 1 to 2^30, or without the key"});
  return std::min(context, most);
}

bool is_embedding_model(const GgufFile& file) {
  const auto architecture = file.get_or<std::string>("general.architecture", "");
  return find_encoder_architecture(architecture) != nullptr ||
         (find_architecture(architecture) != nullptr && file.get_or<std::int64_t>(pooling_key(file), 0) != 0);
}

EmbeddingModel EmbeddingModel::load(const std::string& path, std::span<const Device> devices,
                                    const LoadProgress& progress) {
  return load(GgufFile::open(path), devices, progress);
}

EmbeddingModel EmbeddingModel::load(const GgufFile& file, std::span<const Device> given, const LoadProgress& progress) {
  std::vector<Device> devices(given.begin(), given.end());
  if (devices.empty()) devices.push_back(current_device());
  // If both are unsupported, the architecture is the more helpful error.
  const bool generates = find_architecture(file.get<std::string>("general.architecture")) != nullptr;
  const std::int64_t vocabulary = generates ? read_llama_config(file).vocabulary : read_encoder_config(file).vocabulary;
  read_pooling(file);  // throws if it is not supported
  Tokenizer tokenizer(file);
  if (static_cast<std::int64_t>(tokenizer.size()) > vocabulary)
    fail<FormatError>({.operation = "load model",
                       .with = {{"file", file.name()},
                                {"tokens", std::to_string(tokenizer.size())},
                                {"rows of token_embd.weight", std::to_string(vocabulary)}},
                       .wrong = "the tokenizer has more tokens than the model has embeddings"});
  const ModelMemory memory = estimate_embedding_memory(file, devices, std::min(read_max_tokens(file), usual_text));
  memory.require();
  if (generates) return {Llama::load(file, memory.layers, progress), std::move(tokenizer), file};
  return {Encoder::load(file, devices.front(), progress), std::move(tokenizer), file};
}

EmbeddingModel::EmbeddingModel(std::variant<Encoder, Llama> model, Tokenizer tokenizer, const GgufFile& file)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      pooling_(read_pooling(file)),
      normalizes_(file.get_or<bool>(hub::normalize_key, true)),
      context_length_(read_max_tokens(file)) {}

const std::string& EmbeddingModel::architecture() const {
  return std::visit([](const auto& m) -> const std::string& { return m.config().architecture; }, model_);
}
const std::string& EmbeddingModel::name() const {
  return std::visit([](const auto& m) -> const std::string& { return m.config().name; }, model_);
}
std::int64_t EmbeddingModel::width() const {
  return std::visit([](const auto& m) { return m.config().width; }, model_);
}
Device EmbeddingModel::device() const {
  return std::visit([](const auto& m) { return m.device(); }, model_);
}
std::uint64_t EmbeddingModel::weight_bytes() const {
  return std::visit([](const auto& m) { return m.weight_bytes(); }, model_);
}

/// Shortens a text that is too long, but keeps its end token. Returns true if it was shortened.
bool EmbeddingModel::fit(std::vector<TokenId>& tokens, std::size_t text, bool truncate) const {
  const auto most = static_cast<std::size_t>(context_length());
  if (tokens.empty())
    fail<ArgumentError>({.operation = "embed",
                         .with = {{"text", std::to_string(text)}},
                         .wrong = "the text has no tokens",
                         .remedy = "Pass at least one character"});
  if (tokens.size() <= most) return false;
  if (!truncate)
    fail<ArgumentError>({.operation = "embed",
                         .with = {{"text", std::to_string(text)},
                                  {"tokens", std::to_string(tokens.size())},
                                  {"the model's context length", std::to_string(most)}},
                         .wrong = "the text is longer than the model's context length",
                         .remedy = "Divide it into parts, or drop the rest of it (--truncate, "
                                   "EmbeddingOptions::truncate)"});
  const TokenId end = tokens.back();
  tokens.resize(most);
  if (tokenizer_.adds_eos() && end == tokenizer_.eos()) tokens.back() = end;
  return true;
}

/// Returns the states of all tokens, one text after another: (tokens, width). Returns nothing if it is cancelled.
std::optional<std::vector<float>> EmbeddingModel::states_of(std::span<const std::vector<TokenId>> texts,
                                                            const EmbeddingOptions& options) const {
  if (const auto* const model = std::get_if<Llama>(&model_))
    return llama_states(*model, texts, options.batch, options.cancelled);
  const Array states = std::get<Encoder>(model_).forward(texts, options.cancelled);
  return states.size() > 0 ? std::optional(states.to_vector<float>()) : std::nullopt;
}

std::vector<EmbeddingResult> EmbeddingModel::embed(std::span<const std::string> texts,
                                                   const EmbeddingOptions& options) const {
  std::vector<std::vector<TokenId>> tokens;
  for (const std::string& text : texts) tokens.push_back(tokenizer_.encode(options.prefix + text));
  return embed(tokens, options);
}

std::vector<EmbeddingResult> EmbeddingModel::embed(std::span<const std::vector<TokenId>> given,
                                                   const EmbeddingOptions& options) const {
  if (options.batch < 1)
    fail<ArgumentError>({.operation = "embed",
                         .with = {{"batch", std::to_string(options.batch)}},
                         .wrong = "the number of tokens must be 1 or more"});
  std::vector<std::vector<TokenId>> texts(given.begin(), given.end());
  std::vector<EmbeddingResult> out(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    out[i].truncated = fit(texts[i], i, options.truncate);
    out[i].tokens = std::ssize(texts[i]);
  }
  const auto wide = static_cast<std::size_t>(width());
  // Recurrent layers keep a state for each text, so only one is in memory.
  const auto* const language_model = std::get_if<Llama>(&model_);
  const std::size_t most = language_model && language_model->config().is_recurrent() ? 1 : texts.size();
  for (std::size_t begin = 0, end = 0; begin < texts.size(); begin = end) {
    std::int64_t tokens = 0;
    do tokens += out[end++].tokens;
    while (end < texts.size() && end - begin < most && tokens + out[end].tokens <= options.batch);
    const auto states = states_of(std::span(texts).subspan(begin, end - begin), options);
    if (!states) {
      out.resize(begin);
      break;
    }
    std::span<const float> rest(*states);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t size = static_cast<std::size_t>(out[i].tokens) * wide;
      out[i].values = pooled(rest.first(size), wide, options.pooling.value_or(pooling_));
      rest = rest.subspan(size);
      for (std::size_t at = 0; at < out[i].values.size(); at += wide)
        finish(std::span(out[i].values).subspan(at, wide), i, options.normalize.value_or(normalizes_));
    }
    if (options.on_progress) options.on_progress(end, texts.size());
  }
  return out;
}

EmbeddingResult EmbeddingModel::embed(std::string_view text, const EmbeddingOptions& options) const {
  const std::string one(text);
  std::vector<EmbeddingResult> all = embed(std::span(&one, 1), options);
  return all.empty() ? EmbeddingResult{} : std::move(all[0]);
}

ModelMemory estimate_embedding_memory(const GgufFile& file, std::span<const Device> devices, std::int64_t context,
                                      std::int64_t batch) {
  const std::int64_t most = read_max_tokens(file);
  require_context("estimate", context, most);
  if (context == 0) context = most;
  if (find_architecture(file.get<std::string>("general.architecture")) != nullptr)
    return estimate_memory(file, devices,
                           {.context = context, .prompt = context, .batch = batch, .cache_dtype = DType::f32});
  if (devices.size() != 1 || context < 1 || batch < 1)
    fail<ArgumentError>({.operation = "load model",
                         .with = {{"devices", std::to_string(devices.size())},
                                  {"context", std::to_string(context)},
                                  {"batch", std::to_string(batch)}},
                         .wrong = "an encoder needs one device, and numbers of tokens of 1 or more",
                         .remedy = "Name one device"});
  ModelMemory m;
  m.file = file.name(), m.context = m.prompt = context, m.batch = batch;
  DeviceMemory on{.device = devices.front(),
                  .bound = memory_stats(devices.front()).bound,
                  .free = free_for_models(devices.front())};
  const DryRun run(on.device);
  {
    const Encoder model = Encoder::load(file, run.device());
    const std::vector<std::vector<TokenId>> texts(static_cast<std::size_t>(std::max<std::int64_t>(batch / context, 1)),
                                                  std::vector<TokenId>(static_cast<std::size_t>(context)));
    model.forward(texts);
    on.layers = model.config().layers, on.weights = model.weight_bytes();
  }
  on.peak = run.stats().peak_bytes;
  m.layers.assign(static_cast<std::size_t>(on.layers), on.device);
  m.devices.push_back(on);
  return m;
}

double cosine_similarity(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size())
    fail<ArgumentError>({.operation = "cosine_similarity",
                         .with = {{"sizes", fmt::format("{} and {}", a.size(), b.size())}},
                         .wrong = "the vectors have different sizes"});
  double product = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    product += x * y, of_a += x * x, of_b += y * y;
  }
  return product / std::sqrt(of_a * of_b);
}

}  // namespace tessera
