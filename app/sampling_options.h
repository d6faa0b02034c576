// SPDX-License-Identifier: Apache-2.0
// The sampling options of the command line, which /set of `tessera chat` changes, too.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/llm/sampler.h"

namespace tessera::app {

struct SamplingOption {
  std::string name;  ///< without dashes
  std::string help;
  std::string standard;  ///< the default
  const char* type;      ///< "FLOAT" or "INT"
  CLI::Validator check;  ///< validates and normalises the text of a value
  std::string (*get)(const SamplerOptions&);
  void (*set)(SamplerOptions&, const std::string& checked);
};

/// The options that are numbers, in the order of the help text. The seed and the biases are not included.
const std::vector<SamplingOption>& sampling_options();

/// Parses a logit bias such as "15043=-2.5" or "2=-inf". Throws ArgumentError if the text is not a bias.
std::pair<std::int32_t, double> bias_of(const std::string& text);

}  // namespace tessera::app
