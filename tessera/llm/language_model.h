// SPDX-License-Identifier: Apache-2.0
// A language model ready to use: a model file's weights on a device, with its tokenizer, generating text.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/enum_name.h"
#include "tessera/llm/llama.h"
#include "tessera/llm/sampler.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {

/// Options of LanguageModel::generate.
struct GenerateOptions {
  SamplerOptions sampling;             ///< How tokens are chosen.
  std::int64_t max_tokens = 256;       ///< to generate at most
  std::int64_t context = 0;            ///< tokens of prompt and answer together; 0: what the model was made for
  std::int64_t batch = 256;            ///< tokens of the prompt that are read at once
  DType cache_dtype = DType::f16;      ///< The dtype of keys and values.
  bool recorded = true;                ///< steps are recorded and replayed (decoder.h)
  std::vector<std::string> stop = {};  ///< texts that end the answer where they come up, and are no part of it
  /// So many of the likeliest tokens go into GenerateResult::log_probabilities beside each chosen one; -1: nothing
  /// does.
  std::int64_t log_probabilities = -1;
  std::function<bool()> cancelled = {};  ///< asked between tokens, and between batches of the prompt; true ends it
  std::vector<TokenId> shown = {};       ///< control tokens whose text is given out; that of others is left out
};

/// Why a text ended.
enum class StopReason : std::uint8_t { end_token, max_tokens, context_full, cancelled, stop_text };
std::string_view stop_reason_name(StopReason reason);  ///< The reason for people: "context full".
inline std::string to_string(StopReason reason) { return std::string(stop_reason_name(reason)); }  ///< "context full"

/// A generated text, and how it was made.
struct GenerateResult {
  std::vector<TokenId> prompt_tokens;          ///< The tokens of the prompt.
  std::vector<TokenId> tokens;                 ///< without the one that ended it, with those of `stop`
  std::string text;                            ///< valid UTF-8
  StopReason reason = StopReason::max_tokens;  ///< Why it ended.
  std::string stop;                            ///< the text of GenerateOptions::stop that ended it
  std::int64_t read = 0;                       ///< tokens of the prompt that were not in the cache already
  std::optional<TokenId> end_token = {};       ///< the one that ended it
  /// If asked for: of each of `tokens`, first its own, then those of the likeliest.
  std::vector<std::vector<TokenProbability>> log_probabilities;
  double prompt_seconds = 0, generate_seconds = 0;  ///< Seconds to read the prompt, and to generate.
  /// Tokens of the prompt that were read, per second.
  double prompt_tokens_per_second() const {
    return prompt_seconds > 0 ? static_cast<double>(read) / prompt_seconds : 0;
  }
  /// The first token comes with the prompt, so it is not counted.
  double tokens_per_second() const {
    return generate_seconds > 0 && tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / generate_seconds : 0;
  }
};
/// How much was read and generated, how fast, and why it ended; without the text.
std::string to_string(const GenerateResult& result);

/// Gets each piece of text as it comes, whole UTF-8 characters only; false ends the generation.
using TextCallback = std::function<bool(std::string_view piece)>;

/// Options of LanguageModel::load.
struct LoadOptions {
  /// Where the model computes; none: on current_device(). With several, layers go to the first as far as its memory
  /// goes, then to the next.
  std::vector<Device> devices;
  LoadProgress progress;  ///< Called while the file is read.
  /// If given, continuing this prompt so must be possible, and the memory for it be there: else LanguageModel::load
  /// gives the error of `generate`, before anything is loaded.
  std::optional<std::string> prompt = {};
  GenerateOptions generate = {};  ///< The options that will be used with `prompt`.
  /// If given, makes the prompt in place of `prompt`, once the file's tokenizer is there.
  std::function<std::vector<TokenId>(const Tokenizer&)> make_prompt = {};
  /// If not 0, there must be memory for a conversation of so many tokens, with `generate.batch` and `cache_dtype`.
  std::int64_t conversation = 0;
  /// Called once the file's metadata and what is asked are found right, before memory is measured and weights are read.
  std::function<void()> accepted = {};
};

/// ArgumentError: a number of the options is out of its range.
void require_generate(const GenerateOptions& options);
/// ArgumentError unless a prompt of `given` tokens can be continued in this context of a model made for `trained`.
void require_prompt(std::int64_t given, std::int64_t context, std::int64_t trained);

/// A language model on a device, ready to generate text.
class LanguageModel {
 public:
  /// Errors of GgufFile::open, Tokenizer and Llama::load, and with a prompt those of `generate`. A model that does not
  /// fit is an OutOfMemory with what is needed and free, before anything is loaded.
  static LanguageModel load(const std::string& path, const LoadOptions& options);
  static LanguageModel load(const GgufFile& file, const LoadOptions& options);
  static LanguageModel load(const std::string& path, std::optional<Device> device = {},
                            const LoadProgress& progress = {}) {
    return load(path,
                LoadOptions{.devices = device ? std::vector{*device} : std::vector<Device>{}, .progress = progress});
  }

  /// Reads the prompt and continues it. ArgumentError if the prompt is empty or does not fit into the context,
  /// the context is longer than the model was made for, or a number of the options is out of its range.
  GenerateResult generate(std::string_view prompt, const GenerateOptions& options = {},
                          const TextCallback& on_text = {}) const;
  /// The same for a prompt of tokens, which are read as they are.
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options = {},
                          const TextCallback& on_text = {}) const;

  /// The model without its tokenizer.
  const Llama& model() const { return model_; }
  /// The tokenizer of the model's file.
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Device device() const { return model_.device(); }  ///< the first, if there are several
  /// How long loading took.
  double load_seconds() const { return load_seconds_; }

 private:
  LanguageModel(Llama model, Tokenizer tokenizer, double seconds)
      : model_(std::move(model)), tokenizer_(std::move(tokenizer)), load_seconds_(seconds) {}
  Llama model_;
  Tokenizer tokenizer_;
  double load_seconds_ = 0;
};

}  // namespace tessera
