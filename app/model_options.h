// SPDX-License-Identifier: Apache-2.0
// Options common to `generate` and `chat`: sampling, device, threads.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/llm/language_model.h"

namespace tessera::app {

struct ModelOptions {
  std::string model, devices, cache = "f16";
  GenerateOptions generate;  ///< as given on the command line; sampling: see merge_sampling
  std::optional<std::int64_t> threads;
  std::optional<double> temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
  std::optional<std::int64_t> top_k, penalty_last;
  std::vector<std::string> biases;

  /// Declares these options. The seed is random unless it is given.
  void declare(CLI::App& sub);
  /// Options given on the command line, over those of the file.
  SamplerOptions merge_sampling(SamplerOptions files) const;
  /// Applies settings that must precede device discovery.
  void begin();
};

/// The devices of `--device`, or the current device, and the reason. `whole`: with all details of the reason.
std::pair<std::vector<Device>, std::string> where(const ModelOptions& o, bool whole);

/// Loads the model and shows progress. `more`: memory options.
LanguageModel load_with_progress(const GgufFile& file, const ModelOptions& o, const std::vector<Device>& devices,
                                 LoadOptions more, bool quiet);

/// Parses decimal token ids separated by white space or commas. Throws ArgumentError for anything else.
std::vector<TokenId> token_numbers(std::string_view text);

constexpr std::int64_t most_tokens = std::int64_t{1} << 40;

}  // namespace tessera::app
