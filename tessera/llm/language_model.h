// SPDX-License-Identifier: Apache-2.0
// A language model that is ready to generate text: the weights on a device, and the tokenizer.
#pragma once

#include <memory>
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

class Grammar;

/// Options of LanguageModel::generate.
struct GenerateOptions {
  SamplerOptions sampling;             ///< How tokens are chosen.
  std::int64_t max_tokens = 256;       ///< maximum number of tokens to generate
  std::int64_t context = 0;            ///< length of prompt and answer in tokens; 0: the model's context length
  std::int64_t batch = 256;            ///< number of prompt tokens that are read at a time
  DType cache_dtype = DType::f16;      ///< The dtype of keys and values: f32, f16, or i8 for Q8_0 (cache_row()).
  bool recorded = true;                ///< record steps and replay them (decoder.h)
  std::vector<std::string> stop = {};  ///< texts that end the answer and are not included in it
  /// Enables log probabilities: the number of likeliest tokens to report at each position, in addition to the chosen
  /// token. -1: do not compute log probabilities.
  std::int64_t log_probabilities = -1;
  Callback<bool()> cancelled = {};  ///< called between tokens and prompt batches; return true to stop
  /// Called before each prompt batch with the number of prompt tokens read so far and in total. Tokens that were in the
  /// cache are not counted.
  Callback<void(std::int64_t done, std::int64_t total)> on_read = {};
  std::vector<TokenId> shown = {};  ///< control tokens to include in the output; others are omitted
  /// If set, the answer matches this grammar (grammar/grammar.h) when generation stops with StopReason::end_token, and
  /// can be continued to match it when it stops for another reason, except for a stop text. Control tokens are
  /// excluded, so a model cannot think or call tools. Log probabilities are those without the grammar.
  std::shared_ptr<const Grammar> grammar = {};
  /// If set, a file (saved_prompt.h) with the keys and values of a prompt. If it exists, the first text of a session
  /// takes from it what the prompts have in common. It is written after a prompt has been read that it does not
  /// contain.
  std::string prompt_cache = {};
};

/// Why generation stopped.
enum class StopReason : std::uint8_t { end_token, max_tokens, context_full, cancelled, stop_text };
std::string_view stop_reason_name(StopReason reason);  ///< Returns a readable name, such as "context full".
/// Returns a readable name, such as "context full".
inline std::string to_string(StopReason reason) { return std::string(stop_reason_name(reason)); }

/// A generated text and its statistics.
struct GenerateResult {
  std::vector<TokenId> prompt_tokens;  ///< The tokens of the prompt.
  /// The generated tokens. The token that ended the text is not included, but the tokens of a stop text are.
  std::vector<TokenId> tokens;
  std::string text;                            ///< valid UTF-8
  StopReason reason = StopReason::max_tokens;  ///< Why generation stopped.
  std::string stop;                            ///< the element of GenerateOptions::stop that ended the text
  std::int64_t read = 0;                       ///< number of prompt tokens that were not in the cache
  std::optional<TokenId> end_token = {};       ///< the token that ended the text
  /// If requested: for each of `tokens`, its log probability, followed by the likeliest tokens in descending order.
  std::vector<std::vector<TokenProbability>> log_probabilities;
  double prompt_seconds = 0, generate_seconds = 0;  ///< Time for reading the prompt and for generating.
  /// Prompt tokens read per second. Tokens that were in the cache are not counted.
  double prompt_tokens_per_second() const {
    return prompt_seconds > 0 ? static_cast<double>(read) / prompt_seconds : 0;
  }
  /// Tokens generated per second. The first token is not counted, because it is computed with the prompt.
  double tokens_per_second() const {
    return generate_seconds > 0 && tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / generate_seconds : 0;
  }
};
/// Returns a summary with the number of tokens, the speed and the stop reason.
std::string to_string(const GenerateResult& result);

/// Called with each piece of text, in whole UTF-8 characters. Return false to stop.
using TextCallback = Callback<bool(std::string_view piece)>;

/// Options of LanguageModel::load.
struct LoadOptions {
  /// The devices to use. Empty: current_device(). If there are several and the model does not fit on the first, the
  /// devices are filled with layers in order.
  std::vector<Device> devices;
  LoadProgress progress;  ///< Called while the file is read.
  /// If set, load() checks that this prompt fits in the context and that there is enough memory to continue it. It does
  /// so before it reads the weights, and throws the errors of `generate` if a check fails.
  std::optional<std::string> prompt = {};
  GenerateOptions generate = {};  ///< The options that will be used with `prompt`.
  /// If set, this function creates the tokens of the prompt, and `prompt` is ignored.
  Callback<std::vector<TokenId>(const Tokenizer&)> make_prompt = {};
  /// If not 0, load() checks that there is enough memory for a conversation with this number of tokens. The check uses
  /// `generate.batch` and `generate.cache_dtype`.
  std::int64_t conversation = 0;
  /// Called after the metadata and the options are validated, before memory is estimated and the weights are read.
  Callback<void()> accepted = {};
};

/// Throws ArgumentError if an option is out of range.
void require_generate(const GenerateOptions& options);
/// Throws ArgumentError if a prompt of `given` tokens is empty or does not fit in `context`. The message contains
/// `trained`, the model's context length.
void require_prompt(std::int64_t given, std::int64_t context, std::int64_t trained);

/// A language model on a device, ready to generate text.
class LanguageModel {
 public:
  /// Loads a model. Throws the errors of GgufFile::open, Tokenizer and Llama::load, and the errors of `generate` if the
  /// options contain a prompt. If the model does not fit, throws OutOfMemory before weights are read; the message
  /// contains the needed and the free memory.
  static LanguageModel load(const std::string& path, const LoadOptions& options);
  static LanguageModel load(const GgufFile& file, const LoadOptions& options);
  static LanguageModel load(const std::string& path, std::optional<Device> device = {},
                            const LoadProgress& progress = {}) {
    return load(path,
                LoadOptions{.devices = device ? std::vector{*device} : std::vector<Device>{}, .progress = progress});
  }

  /// Reads the prompt and continues it. Throws ArgumentError if the prompt is empty or does not fit in the context, if
  /// the context is longer than the model's context length, if an option is out of range, or if no token continues the
  /// answer as the grammar requires.
  GenerateResult generate(std::string_view prompt, const GenerateOptions& options = {},
                          const TextCallback& on_text = {}) const;
  /// Like the function above, but for a prompt that is already tokenised.
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options = {},
                          const TextCallback& on_text = {}) const;

  /// The model without its tokenizer.
  const Llama& model() const { return model_; }
  /// The tokenizer of the model's file.
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Device device() const { return model_.device(); }  ///< the device of the model, or the first of several devices
  /// The time that loading took, in seconds.
  double load_seconds() const { return load_seconds_; }
  /// Identifies the weights and the configuration of the model: a SHA-256 of the metadata, and of the descriptions and
  /// some of the data of all tensors.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  LanguageModel(Llama model, Tokenizer tokenizer, double seconds, std::string fingerprint)
      : model_(std::move(model)),
        tokenizer_(std::move(tokenizer)),
        load_seconds_(seconds),
        fingerprint_(std::move(fingerprint)) {}
  Llama model_;
  Tokenizer tokenizer_;
  double load_seconds_ = 0;
  std::string fingerprint_;
};

}  // namespace tessera
