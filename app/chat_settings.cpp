// SPDX-License-Identifier: Apache-2.0
#include "chat_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "arguments.h"
#include "model_options.h"
#include "sampling_options.h"
#include "tessera/base/error.h"

namespace tessera::app {
namespace {

struct Setting {
  std::string name, help;
  CLI::Validator check;
  std::function<std::string()> get;
  std::function<void(const std::string& checked)> set;
};

/// Returns all settings. They refer to `o`.
std::vector<Setting> chat_settings(GenerateOptions& o) {
  std::vector<Setting> all;
  for (const SamplingOption& option : sampling_options())
    all.push_back({option.name, option.help, option.check, [&] { return option.get(o.sampling); },
                   [&](const std::string& text) { option.set(o.sampling, text); }});
  all.push_back({"seed", "The seed of the next answer; each answer uses another one", seed_number(),
                 [&] { return std::to_string(o.sampling.seed); },
                 [&](const std::string& text) { o.sampling.seed = std::stoull(text); }});
  all.push_back({"tokens", "Maximum tokens of an answer", integer_in_range(1, most_tokens),
                 [&] { return o.max_tokens == most_tokens ? "unlimited" : std::to_string(o.max_tokens); },
                 [&](const std::string& text) { o.max_tokens = std::stoll(text); }});
  return all;
}

}  // namespace

std::string settings_text(GenerateOptions options) {
  std::string text;
  for (const Setting& s : chat_settings(options)) text += fmt::format("{:<18} {:<10} {}\n", s.name, s.get(), s.help);
  return text;
}

std::string change_setting(GenerateOptions& options, const std::string& text) {
  const std::size_t end = std::min(text.find_first_of(" \t="), text.size());
  const std::string name = text.substr(0, end);
  std::string value = text.substr(std::min(text.find_first_not_of(" \t=", end), text.size()));
  const std::vector<Setting> all = chat_settings(options);
  const auto setting = std::ranges::find(all, name, &Setting::name);
  if (setting == all.end())
    fail<ArgumentError>({.operation = "chat",
                         .with = {{"option", name}},
                         .wrong = "unknown option",
                         .remedy = "/set lists the options"});
  if (value.empty())
    fail<ArgumentError>({.operation = "chat",
                         .wrong = fmt::format("/set {} needs a value", name),
                         .remedy = fmt::format("It is {} now", setting->get())});
  if (const std::string wrong = setting->check(value); !wrong.empty())
    fail<ArgumentError>({.operation = "chat", .with = {{"option", name}}, .wrong = wrong});
  setting->set(value);
  return fmt::format("{} is {}", name, setting->get());
}

}  // namespace tessera::app
