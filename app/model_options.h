// SPDX-License-Identifier: Apache-2.0
// What `generate` and `chat` ask alike: how tokens are drawn, where the model computes, on how many threads.
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
  GenerateOptions generate;  ///< what the command line says of it; sampling: `merge_sampling`
  std::optional<std::int64_t> threads;
  std::optional<double> temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
  std::optional<std::int64_t> top_k, penalty_last;
  std::vector<std::string> biases;

  /// Declares the options of all of these. The seed is a new one until it is given.
  void declare(CLI::App& sub);
  /// What was given on the command line over what a file asks for.
  SamplerOptions merge_sampling(SamplerOptions files) const;
  /// Makes what must be set before the first device is found hold.
  void begin();
};

/// What `--device` says, with its reason; what is current if it says nothing. `whole`: all of the reason.
std::pair<std::vector<Device>, std::string> where(const ModelOptions& o, bool whole);

/// Loads with a line of progress. `more`: what is asked of the memory.
LanguageModel load_with_progress(const GgufFile& file, const ModelOptions& o, const std::vector<Device>& devices,
                                 LoadOptions more, bool quiet);

/// The numbers of tokens in a text: in decimal, with white space or commas between. ArgumentError: something else.
std::vector<TokenId> token_numbers(std::string_view text);

constexpr std::int64_t most_tokens = std::int64_t{1} << 40;

}  // namespace tessera::app
