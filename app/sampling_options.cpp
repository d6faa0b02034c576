// SPDX-License-Identifier: Apache-2.0
#include "sampling_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "arguments.h"
#include "model_options.h"
#include "tessera/base/error.h"

namespace tessera::app {
namespace {

template <auto member>
SamplingOption option(const char* name, const char* help, CLI::Validator check) {
  constexpr bool is_real = std::is_same_v<decltype(member), double SamplerOptions::*>;
  const auto get = [](const SamplerOptions& o) { return fmt::format("{}", o.*member); };
  return {.name = name,
          .help = help,
          .standard = get({}),
          .type = is_real ? "FLOAT" : "INT",
          .check = std::move(check),
          .get = get,
          .set = [](SamplerOptions& o, const std::string& text) {
            if constexpr (is_real)
              o.*member = std::strtod(text.c_str(), nullptr);
            else
              o.*member = std::strtoll(text.c_str(), nullptr, 10);
          }};
}

}  // namespace

const std::vector<SamplingOption>& sampling_options() {
  using S = SamplerOptions;
  static const std::vector<SamplingOption> all = {
      option<&S::temperature>("temperature", "0: always the most likely token", number(0, 1e6)),
      option<&S::top_k>("top-k", "Choose among the k most likely tokens; 0: all", integer_in_range(0, most_tokens)),
      option<&S::top_p>("top-p", "Choose among the most likely tokens with this total probability; 1: all",
                        number(0, 1, true)),
      option<&S::min_p>("min-p", "Choose among tokens with at least this fraction of the highest probability; 0: all",
                        number(0, 1)),
      option<&S::repeat_penalty>("repeat-penalty", "Divides the logits of repeated tokens; 1: none",
                                 number(0, 1e6, true)),
      option<&S::frequency_penalty>("frequency-penalty", "Subtracted from a token's logit for each previous occurrence",
                                    number(-1e6, 1e6)),
      option<&S::presence_penalty>("presence-penalty", "Subtracted from a token's logit once if it occurred before",
                                   number(-1e6, 1e6)),
      option<&S::penalty_last>("penalty-last", "Number of previous tokens that penalties consider; -1: all",
                               integer_in_range(-1, most_tokens))};
  return all;
}

std::pair<std::int32_t, double> bias_of(const std::string& text) {
  const std::size_t at = text.find('=');
  std::int32_t id = -1;
  double bias = NAN;
  if (at != std::string::npos) {
    const char *const begin = text.data(), *const middle = begin + at, *const end = begin + text.size();
    if (std::from_chars(begin, middle, id).ptr != middle) id = -1;
    if (std::from_chars(middle + 1, end, bias).ptr != end) bias = NAN;
  }
  if (id < 0 || std::isnan(bias))
    fail<ArgumentError>(
        {.wrong = fmt::format(
             "\"{}\" is not a bias; expected TOKEN=NUMBER, such as 15043=-2.5 (-inf excludes the token)", text)});
  return {id, bias};
}

}  // namespace tessera::app
