// SPDX-License-Identifier: Apache-2.0
#include "model_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>

#include "arguments.h"
#include "command.h"
#include "terminal.h"

namespace tessera::app {
namespace {

/// Parses a logit bias such as "15043=-2.5" or "2=-inf".
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
    throw CLI::ValidationError(
        "--logit-bias",
        fmt::format("\"{}\" is not a bias; expected TOKEN=NUMBER, such as 15043=-2.5 (-inf excludes the token)", text));
  return {id, bias};
}

}  // namespace

void ModelOptions::declare(CLI::App& sub) {
  generate.sampling.seed = std::random_device{}();
  sub.add_option("MODEL", model, "A GGUF file")->required();
  sub.add_option("--device", devices,
                 "The device, as named by `tessera devices` (default: the one that it selects). If several devices are "
                 "given, separated by commas, they are filled with layers in order")
      ->check(require_nonempty);
  sub.add_option("--threads", threads, "CPU threads (default: TESSERA_THREADS, else all available cores)")
      ->transform(integer_in_range(1, 4096));
  const std::string group = "Sampling (defaults: the file's general.sampling.*, else in brackets)";
  const auto add = [&](const char* name, auto& to, const char* help, const CLI::Validator& check) {
    sub.add_option(name, to, help)->group(group)->transform(check);
  };
  add("--temperature", temperature, "0: always the most likely token [0.8]", number(0, 1e6));
  add("--top-k", top_k, "Choose among the k most likely tokens; 0: all [40]", integer_in_range(0, most_tokens));
  add("--top-p", top_p, "Choose among the most likely tokens with this total probability; 1: all [0.95]",
      number(0, 1, true));
  add("--min-p", min_p, "Choose among tokens with at least this fraction of the highest probability; 0: all [0]",
      number(0, 1));
  add("--repeat-penalty", repeat_penalty, "Divides the logits of repeated tokens; 1: none [1]", number(0, 1e6, true));
  add("--frequency-penalty", frequency_penalty, "Subtracted from a token's logit for each previous occurrence [0]",
      number(-1e6, 1e6));
  add("--presence-penalty", presence_penalty, "Subtracted from a token's logit once if it occurred before [0]",
      number(-1e6, 1e6));
  add("--penalty-last", penalty_last, "Number of previous tokens that penalties consider; -1: all [64]",
      integer_in_range(-1, most_tokens));
  sub.add_option("--logit-bias", biases, "TOKEN=NUMBER, added to the logit of this token id; can be repeated")
      ->group(group)
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        try {
          bias_of(text);
        } catch (const CLI::ValidationError& e) {
          return std::string(e.what());
        }
        return std::string();
      });
  add("--seed", generate.sampling.seed,
      "The same seed produces the same text on the same device and processor (default: a new seed, which is printed)",
      seed_number());
  sub.add_option("--stop", generate.stop, "End the text before this string; can be repeated")
      ->allow_extra_args(false)
      ->check(require_nonempty);
  sub.add_option("--batch", generate.batch, "Prompt tokens per batch")
      ->capture_default_str()
      ->transform(integer_in_range(1, most_tokens));
  sub.add_option("--cache", cache, "Storage type of keys and values")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "f32"}));
}

SamplerOptions ModelOptions::merge_sampling(SamplerOptions o) const {
  o.seed = generate.sampling.seed;
  o.temperature = temperature.value_or(o.temperature);
  o.top_k = top_k.value_or(o.top_k);
  o.top_p = top_p.value_or(o.top_p);
  o.min_p = min_p.value_or(o.min_p);
  o.repeat_penalty = repeat_penalty.value_or(o.repeat_penalty);
  o.frequency_penalty = frequency_penalty.value_or(o.frequency_penalty);
  o.presence_penalty = presence_penalty.value_or(o.presence_penalty);
  o.penalty_last = penalty_last.value_or(o.penalty_last);
  for (const std::string& text : biases) o.logit_bias.push_back(bias_of(text));
  return o;
}

void ModelOptions::begin() {
  if (threads) ::setenv("TESSERA_THREADS", std::to_string(*threads).c_str(), 1);
  generate.cache_dtype = cache == "f32" ? DType::f32 : DType::f16;
}

std::pair<std::vector<Device>, std::string> where(const ModelOptions& o, bool whole) {
  if (o.devices.empty()) return {{current_device()}, why_current_device(whole ? Detail::full : Detail::brief)};
  const std::vector<Device> devices = parse_devices(o.devices);
  std::string names;
  for (const Device device : devices)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", to_string(device), device_info(device).name);
  return {devices, fmt::format("{}: --device {}", names, o.devices)};
}

std::vector<TokenId> token_numbers(std::string_view text) {
  std::vector<TokenId> ids;
  constexpr std::string_view between = " \t\r\n,";
  for (std::size_t at = 0; (at = text.find_first_not_of(between, at)) != std::string_view::npos;) {
    const std::string_view word = text.substr(at, text.find_first_of(between, at) - at);
    TokenId id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc{} || end != word.data() + word.size() || id < 0)
      fail<ArgumentError>(
          {.operation = "tokens", .with = {{"number", std::string(word)}}, .wrong = "this is not a token id"});
    ids.push_back(id);
    at += word.size();
  }
  return ids;
}

LanguageModel load_with_progress(const GgufFile& file, const ModelOptions& o, const std::vector<Device>& devices,
                                 LoadOptions more, bool quiet) {
  Progress progress(quiet);
  const std::string name = std::filesystem::path(o.model).filename().string();
  std::string where;
  for (const Device device : devices) where += (where.empty() ? "" : ",") + to_string(device);
  more.devices = devices;
  more.progress = [&](const std::string& tensor, std::uint64_t done, std::uint64_t total) {
    progress.update(fmt::format("loading {} on {}: {:3.0f} %  {}", name, where,
                                total ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0,
                                tensor));
  };
  more.accepted = [&] { progress.step(fmt::format("loading {} on {}", name, where)); };
  return LanguageModel::load(file, more);
}

}  // namespace tessera::app
