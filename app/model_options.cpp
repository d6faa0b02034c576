// SPDX-License-Identifier: Apache-2.0
#include "model_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "arguments.h"
#include "command.h"
#include "model_files.h"
#include "sampling_options.h"
#include "terminal.h"
#include "tessera/base/error.h"

namespace tessera::app {

void ModelOptions::declare_model(CLI::App& sub, const char* names) {
  sub.add_option(names, model, model_help)->required();
  add_weights_option(sub, weights);
  sub.add_option("--device", devices,
                 "The device, as named by `tessera devices` (default: the one that it selects). If several devices are "
                 "given, separated by commas, they are filled with layers in order")
      ->check(require_nonempty);
  sub.add_option("--threads", threads, "CPU threads (default: TESSERA_THREADS, else all available cores)")
      ->transform(integer_in_range(1, 4096));
  sub.add_option("--batch", generate.batch, "Prompt tokens per batch")
      ->capture_default_str()
      ->transform(integer_in_range(1, most_tokens));
  add_cache_option(sub, cache);
  rope.declare(sub);
}

void add_prompt_cache_option(CLI::App& sub, std::string& file) {
  sub.add_option(
         "--prompt-cache", file,
         "A file for the keys and values of the prompt: what it contains of the prompt is not read again, and it "
         "is written if it does not contain the whole prompt")
      ->check(require_nonempty);
}

void add_cache_option(CLI::App& sub, std::string& cache) {
  sub.add_option("--cache,--cache-type", cache,
                 "Storage type of keys and values: q8_0 takes half of the memory of f16, and is less exact")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "f32", "q8_0"}));
}

DType cache_dtype(const std::string& cache) {
  return cache == "f32" ? DType::f32 : cache == "q8_0" ? DType::i8 : DType::f16;
}

GgufFile ModelOptions::open() const {
  GgufFile file = open_model(model, weights);
  rope.apply(file);
  return file;
}

void ModelOptions::declare(CLI::App& sub) {
  declare_model(sub);
  generate.sampling.seed = std::random_device{}();
  const std::string group = "Sampling (defaults: the file's general.sampling.*, else in brackets)";
  sampling.resize(sampling_options().size());
  for (std::size_t i = 0; i < sampling.size(); ++i) {
    const SamplingOption& option = sampling_options()[i];
    sub.add_option("--" + option.name, sampling[i], fmt::format("{} [{}]", option.help, option.standard))
        ->group(group)
        ->type_name(option.type)
        ->transform(option.check);
  }
  sub.add_option("--logit-bias", biases, "TOKEN=NUMBER, added to the logit of this token id; can be repeated")
      ->group(group)
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        try {
          bias_of(text);
        } catch (const ArgumentError& e) {
          return std::string(e.what());
        }
        return std::string();
      });
  sub.add_option("--seed", generate.sampling.seed,
                 "The same seed produces the same text on the same device and processor (default: a new seed, which is "
                 "printed)")
      ->group(group)
      ->transform(seed_number());
  sub.add_option("--stop", generate.stop, "End the text before this string; can be repeated")
      ->allow_extra_args(false)
      ->check(require_nonempty);
}

SamplerOptions ModelOptions::merge_sampling(SamplerOptions o) const {
  o.seed = generate.sampling.seed;
  for (std::size_t i = 0; i < sampling.size(); ++i)
    if (sampling[i]) sampling_options()[i].set(o, *sampling[i]);
  for (const std::string& text : biases) o.logit_bias.push_back(bias_of(text));
  return o;
}

void ModelOptions::begin() {
  if (threads) ::setenv("TESSERA_THREADS", std::to_string(*threads).c_str(), 1);
  generate.cache_dtype = cache_dtype(cache);
}

std::pair<std::vector<Device>, std::string> where(const ModelOptions& o, bool whole) {
  if (o.devices.empty()) return {{current_device()}, why_current_device(whole ? Detail::full : Detail::brief)};
  const std::vector<Device> devices = parse_devices(o.devices);
  std::string names;
  for (const Device device : devices)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", to_string(device), device_info(device).name);
  return {devices, fmt::format("{}: --device {}", names, o.devices)};
}

std::string per_second(double rate) {
  return fmt::format("{:.{}f} tokens/s", rate, rate < 10 ? 2 : rate < 100 ? 1 : 0);
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

namespace {

/// Shows the progress of loading.
class LoadingProgress {
 public:
  LoadingProgress(const ModelOptions& o, const std::vector<Device>& devices, bool quiet) : progress_(quiet) {
    for (const Device device : devices) text_ += (text_.empty() ? "" : ",") + to_string(device);
    text_ = fmt::format("loading {} on {}", std::filesystem::path(o.model).filename().string(), text_);
  }
  void begin() { progress_.step(text_); }
  LoadProgress callback() {
    return [this](const std::string& tensor, std::uint64_t done, std::uint64_t total) {
      progress_.update(fmt::format("{}: {:3.0f} %  {}", text_,
                                   total ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0,
                                   tensor));
    };
  }

 private:
  Progress progress_;
  std::string text_;
};

}  // namespace

LanguageModel load_with_progress(const GgufFile& file, const ModelOptions& o, const std::vector<Device>& devices,
                                 LoadOptions more, bool quiet) {
  LoadingProgress progress(o, devices, quiet);
  more.devices = devices;
  more.progress = progress.callback();
  more.accepted = [&] { progress.begin(); };
  return LanguageModel::load(file, more);
}

EmbeddingModel load_embedding_model(const GgufFile& file, const ModelOptions& o, const std::vector<Device>& devices,
                                    bool quiet) {
  LoadingProgress progress(o, devices, quiet);
  return EmbeddingModel::load(file, devices, progress.callback());
}

}  // namespace tessera::app
