// SPDX-License-Identifier: Apache-2.0
// The options that commands with a model have in common: devices, threads and sampling.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rope_options.h"
#include "tessera/llm/embedding_model.h"
#include "tessera/llm/language_model.h"

namespace tessera::app {

struct ModelOptions {
  std::string model, devices, cache = "f16", weights;
  GenerateOptions generate;  ///< options from the command line; use merge_sampling for `sampling`
  std::optional<std::int64_t> threads;
  std::vector<std::optional<std::string>> sampling;  ///< values of sampling_options(), as on the command line
  std::vector<std::string> biases;
  RopeOptions rope;

  /// Declares these options on a command. The default seed is random.
  void declare(CLI::App& sub);
  /// Declares only the options of the model, the devices and the memory. `names` are the names of the model's option.
  void declare_model(CLI::App& sub, const char* names = "MODEL");
  /// Returns the sampling options of the file, overridden by options on the command line.
  SamplerOptions merge_sampling(SamplerOptions files) const;
  /// Applies settings that must be set before devices are discovered.
  void begin();
  /// Opens the file of the model, with the scaling of `rope`.
  GgufFile open() const;
};

/// Declares --prompt-cache, the file of a saved prompt.
void add_prompt_cache_option(CLI::App& sub, std::string& file);
/// Declares --cache, the storage type of keys and values.
void add_cache_option(CLI::App& sub, std::string& cache);
/// Returns the dtype of a value of --cache; i8 for q8_0.
DType cache_dtype(const std::string& cache);

/// Returns the devices of `--device`, or the current device, with the reason for the choice. `whole` requests all
/// details of the reason.
std::pair<std::vector<Device>, std::string> where(const ModelOptions& o, bool whole);

/// Loads the model and shows progress. `more` contains options for the memory check.
LanguageModel load_with_progress(const GgufFile& file, const ModelOptions& o, const std::vector<Device>& devices,
                                 LoadOptions more, bool quiet);

/// Loads an embedding model and shows progress.
EmbeddingModel load_embedding_model(const GgufFile& file, const ModelOptions& o, const std::vector<Device>& devices,
                                    bool quiet);

/// Returns a text such as "45.1 tokens/s".
std::string per_second(double rate);

/// Parses decimal token ids that are separated by white space or commas. Throws ArgumentError for any other text.
std::vector<TokenId> token_numbers(std::string_view text);

constexpr std::int64_t most_tokens = std::int64_t{1} << 40;

}  // namespace tessera::app
