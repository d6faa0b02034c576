// SPDX-License-Identifier: Apache-2.0
// A language model ready for use: the weights of a model file on a device, its tokenizer, and text generation.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/enum_name.h"
#include "tessera/llm/llama.h"
#include "tessera/llm/sampler.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {

/// Options of LanguageModel::generate.
struct GenerateOptions {
  SamplerOptions sampling;             ///< How tokens are chosen.
  std::int64_t max_tokens = 256;       ///< maximum number of tokens to generate
  std::int64_t context = 0;            ///< tokens of prompt and answer together; 0: the model's context length
  std::int64_t batch = 256;            ///< tokens of the prompt that are read at a time
  DType cache_dtype = DType::f16;      ///< The dtype of keys and values.
  bool recorded = true;                ///< record steps and replay them (decoder.h)
  std::vector<std::string> stop = {};  ///< texts that end the answer; they are not part of it
  /// Number of likeliest tokens that GenerateResult::log_probabilities contains in addition to each chosen one; -1: do
  /// not compute log probabilities.
  std::int64_t log_probabilities = -1;
  Callback<bool()> cancelled = {};  ///< called between tokens and prompt batches; true stops
  std::vector<TokenId> shown = {};  ///< control tokens whose text is part of the output; others are omitted
};

/// Why generation stopped.
enum class StopReason : std::uint8_t { end_token, max_tokens, context_full, cancelled, stop_text };
std::string_view stop_reason_name(StopReason reason);  ///< A readable name: "context full".
inline std::string to_string(StopReason reason) { return std::string(stop_reason_name(reason)); }  ///< "context full"

/// A generated text and its statistics.
struct GenerateResult {
  std::vector<TokenId> prompt_tokens;          ///< The tokens of the prompt.
  std::vector<TokenId> tokens;                 ///< without the token that ended it, including those of a stop text
  std::string text;                            ///< valid UTF-8
  StopReason reason = StopReason::max_tokens;  ///< Why generation stopped.
  std::string stop;                            ///< the element of GenerateOptions::stop that ended it
  std::int64_t read = 0;                       ///< tokens of the prompt that were not in the cache
  std::optional<TokenId> end_token = {};       ///< the token that ended it
  /// If requested: for each of `tokens`, its own log probability, then those of the likeliest.
  std::vector<std::vector<TokenProbability>> log_probabilities;
  double prompt_seconds = 0, generate_seconds = 0;  ///< Seconds for reading the prompt and for generating.
  /// Tokens of the prompt that were read, per second.
  double prompt_tokens_per_second() const {
    return prompt_seconds > 0 ? static_cast<double>(read) / prompt_seconds : 0;
  }
  /// Tokens generated per second. The first token is computed with the prompt and not counted.
  double tokens_per_second() const {
    return generate_seconds > 0 && tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / generate_seconds : 0;
  }
};
/// Numbers of tokens, speed and stop reason, without the text.
std::string to_string(const GenerateResult& result);

/// Called with each piece of text, whole UTF-8 characters only. Return false to stop.
using TextCallback = Callback<bool(std::string_view piece)>;

/// Options of LanguageModel::load.
struct LoadOptions {
  /// The devices to use; empty: current_device(). With several, layers fill the devices in order, as far as memory
  /// permits.
  std::vector<Device> devices;
  LoadProgress progress;  ///< Called while the file is read.
  /// If set, load() checks before loading that this prompt can be continued and that there is enough memory for it; it
  /// throws the errors of `generate`.
  std::optional<std::string> prompt = {};
  GenerateOptions generate = {};  ///< The options that will be used with `prompt`.
  /// If set, creates the prompt from the file's tokenizer, instead of `prompt`.
  Callback<std::vector<TokenId>(const Tokenizer&)> make_prompt = {};
  /// If not 0, load() checks that there is memory for a conversation of so many tokens, with `generate.batch` and
  /// `cache_dtype`.
  std::int64_t conversation = 0;
  /// Called after metadata and options are validated, before memory is estimated and weights are read.
  Callback<void()> accepted = {};
};

/// Throws ArgumentError if an option is out of range.
void require_generate(const GenerateOptions& options);
/// Throws ArgumentError unless a prompt of `given` tokens can be continued in this context of a model with context
/// length `trained`.
void require_prompt(std::int64_t given, std::int64_t context, std::int64_t trained);

/// A language model on a device, ready to generate text.
class LanguageModel {
 public:
  /// Loads a model. Throws the errors of GgufFile::open, Tokenizer and Llama::load, and with a prompt those of
  /// `generate`. If the model does not fit, throws OutOfMemory with needed and free memory before anything is loaded.
  static LanguageModel load(const std::string& path, const LoadOptions& options);
  static LanguageModel load(const GgufFile& file, const LoadOptions& options);
  static LanguageModel load(const std::string& path, std::optional<Device> device = {},
                            const LoadProgress& progress = {}) {
    return load(path,
                LoadOptions{.devices = device ? std::vector{*device} : std::vector<Device>{}, .progress = progress});
  }

  /// Reads the prompt and continues it. Throws ArgumentError if the prompt is empty or does not fit in the context, the
  /// context is longer than the model's, or an option is out of range.
  GenerateResult generate(std::string_view prompt, const GenerateOptions& options = {},
                          const TextCallback& on_text = {}) const;
  /// Same, for a prompt of tokens.
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options = {},
                          const TextCallback& on_text = {}) const;

  /// The model without its tokenizer.
  const Llama& model() const { return model_; }
  /// The tokenizer of the model's file.
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Device device() const { return model_.device(); }  ///< the first device, if there are several
  /// How long loading took, in seconds.
  double load_seconds() const { return load_seconds_; }

 private:
  LanguageModel(Llama model, Tokenizer tokenizer, double seconds)
      : model_(std::move(model)), tokenizer_(std::move(tokenizer)), load_seconds_(seconds) {}
  Llama model_;
  Tokenizer tokenizer_;
  double load_seconds_ = 0;
};

}  // namespace tessera
