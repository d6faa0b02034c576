// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "tessera/base/config.h"
#include "tessera/base/log.h"
#include "tessera/base/printable.h"
#include "tessera/device/memory/storage.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/saved_prompt.h"
#include "tessera/llm/stop_filter.h"
#include "tessera/llm/text_session.h"

namespace tessera {

namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Returns the context that `options` request. The default is `trained`, the model's context length.
std::int64_t context_of(const GenerateOptions& options, std::int64_t trained) {
  require_generate(options);
  const std::int64_t context = options.context ? options.context : trained;
  require_context("generate", context, trained);
  return context;
}

}  // namespace

void require_generate(const GenerateOptions& options) {
  const Sampler checked(options.sampling);  // throws ArgumentError if an option is out of range
  const std::pair<std::string_view, std::pair<std::int64_t, std::int64_t>> counts[] = {
      {"context", {options.context, 0}}, {"max_tokens", {options.max_tokens, 0}}, {"batch", {options.batch, 1}}};
  for (const auto& [name, count] : counts)
    if (count.first < count.second)
      fail<ArgumentError>({.operation = "generate",
                           .with = {{name, std::to_string(count.first)}},
                           .wrong = fmt::format("the number of tokens must be {} or more", count.second)});
  const StopFilter stops(options.stop);  // throws ArgumentError if a text is empty
}

void require_prompt(std::int64_t given, std::int64_t context, std::int64_t trained) {
  if (given == 0)
    fail<ArgumentError>(
        {.operation = "generate", .wrong = "the prompt has no tokens", .remedy = "Pass at least one character"});
  if (given <= context) return;
  fail<ArgumentError>(
      {.operation = "generate",
       .with = {{"tokens of the prompt", std::to_string(given)}, {"context", std::to_string(context)}},
       .wrong = "the prompt is longer than the context",
       .remedy = given > trained
                     ? fmt::format("Shorten it: the model's context length is {} tokens", trained)
                     : fmt::format("Shorten it, or increase the context (--ctx), at most to the model's {}", trained)});
}

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::end_token: return "end of text";
    case StopReason::max_tokens: return "number of tokens reached";
    case StopReason::context_full: return "context full";
    case StopReason::stop_text: return "stop text";
    default: return "cancelled";
  }
}

std::string to_string(const GenerateResult& r) {
  return fmt::format("{} read in {:.3g} s, {} generated in {:.3g} s ({:.3g} a second); stopped: {}",
                     count_noun(r.read, "token"), r.prompt_seconds, count_noun(r.tokens.size(), "token"),
                     r.generate_seconds, r.tokens_per_second(), stop_reason_name(r.reason));
}

LanguageModel LanguageModel::load(const std::string& path, const LoadOptions& options) {
  return load(GgufFile::open(path), options);
}

LanguageModel LanguageModel::load(const GgufFile& file, const LoadOptions& options) {
  const Stopwatch watch;
  // Read the configuration before the tokenizer. If both are unsupported, the architecture is the more helpful error.
  const LlamaConfig config = read_llama_config(file);
  if (config.pooling != 0)
    fail<FormatError>({.operation = "load model",
                       .with = {{"file", file.name()}, {"key", config.architecture + ".pooling_type"}},
                       .wrong = "this is an embedding model, which does not generate text",
                       .remedy = "Use `tessera embed`, or EmbeddingModel in C++"});
  logging::info(fmt::format("{}: {} layers of width {}, {} tokens of context, read in {:.2f} s", file.name(),
                            config.layers, config.width, config.context_length, watch.seconds()));
  if (config.ignored_window > 0)
    logging::warn(
        fmt::format("{}: {}.attention.sliding_window = {} is ignored: in longer texts the model attends to more tokens "
                    "than it was trained for",
                    file.name(), config.architecture, config.ignored_window));
  const bool prompted = options.prompt || options.make_prompt;
  if (prompted) context_of(options.generate, config.context_length);
  Tokenizer tokenizer(file);
  if (static_cast<std::int64_t>(tokenizer.size()) > config.vocabulary)
    fail<FormatError>({.operation = "load model",
                       .with = {{"file", file.name()},
                                {"tokens", std::to_string(tokenizer.size())},
                                {"rows of token_embd.weight", std::to_string(config.vocabulary)}},
                       .wrong = "the tokenizer has more tokens than the model has embeddings"});
  logging::info(
      fmt::format("{}: tokenizer with {} tokens ready after {:.2f} s", file.name(), tokenizer.size(), watch.seconds()));
  std::vector<Device> devices = options.devices;
  if (devices.empty()) devices.push_back(current_device());
  MemoryOptions memory{.context = 1, .prompt = 1};
  const GenerateOptions& g = options.generate;
  if (prompted) {
    const auto given = static_cast<std::int64_t>(
        (options.make_prompt ? options.make_prompt(tokenizer) : tokenizer.encode(*options.prompt)).size());
    const std::int64_t context = context_of(g, config.context_length);
    require_prompt(given, context, config.context_length);
    memory.prompt = given;
    memory.context = given + std::min(g.max_tokens, context - given);
    memory.batch = g.batch;
    memory.cache_dtype = g.cache_dtype;
  } else if (options.conversation) {
    memory = {.context = options.conversation, .prompt = 0, .batch = g.batch, .cache_dtype = g.cache_dtype};
  }
  const std::string fingerprint = model_fingerprint(file);
  if (!g.prompt_cache.empty()) check_prompt_cache(g.prompt_cache, config, fingerprint);
  if (options.accepted) options.accepted();
  const ModelMemory needed = estimate_memory(file, devices, memory);
  needed.require();
  Llama model = Llama::load(file, needed.layers, options.progress);
  for (const DeviceMemory& d : needed.devices)
    logging::info(fmt::format("{}: {} layers, {} of weights on {} after {:.2f} s", file.name(), d.layers,
                              config::format_bytes(model.weight_bytes(d.device)), to_string(d.device),
                              watch.seconds()));
  model.prepare();
  // Prompts need larger blocks than the preparation, and the compiler needed memory.
  for (const Device device : std::set(needed.layers.begin(), needed.layers.end())) trim(device);
  logging::info(fmt::format("{}: kernels ready after {:.2f} s", file.name(), watch.seconds()));
  return LanguageModel(std::move(model), std::move(tokenizer), watch.seconds(), fingerprint);
}

GenerateResult LanguageModel::generate(std::string_view prompt, const GenerateOptions& options,
                                       const TextCallback& on_text) const {
  return generate(tokenizer_.encode(prompt), options, on_text);
}

GenerateResult LanguageModel::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                       const TextCallback& on_text) const {
  const auto given = static_cast<std::int64_t>(prompt.size());
  const std::int64_t trained = model_.config().context_length;
  const std::int64_t context = context_of(options, trained);
  require_prompt(given, context, trained);
  TextSession session(*this, given + std::min(options.max_tokens, context - given), options.cache_dtype,
                      TextSession::Memory::at_once, options.recorded);
  return session.generate(prompt, options, on_text);
}

}  // namespace tessera
