// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/llm/gguf_types.h"

namespace tessera::hub {
namespace {

using nlohmann::json;

// The patterns of the tokenizer.json of each family, as in tools/make_tokenizer_cases.py.
#define TESSERA_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TESSERA_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TESSERA_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TESSERA_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define TESSERA_WORD R"([^\r\n\p{L}\p{N}]?)"
constexpr std::string_view gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view digit = R"(\p{N})";

/// The patterns of a family, and its names in tokenizer_split.h without and with `ignore_merges`.
struct KnownPatterns {
  std::vector<std::string_view> patterns;
  std::string_view merging, ignoring;
};

const std::vector<KnownPatterns>& known_patterns() {
  static const std::vector<KnownPatterns> known = {
      {{gpt2}, "gpt-2", ""},
      {{digit, gpt2}, "smollm", ""},
      {{TESSERA_CONTRACTIONS "|" TESSERA_WORD R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" TESSERA_SPACES},
       "dbrx",
       "llama-bpe"},
      {{TESSERA_CONTRACTIONS "|" TESSERA_WORD R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" TESSERA_SPACES},
       "qwen2",
       ""},
      {{TESSERA_WORD TESSERA_UPPER "*" TESSERA_LOWER "+|" TESSERA_WORD TESSERA_UPPER "+" TESSERA_LOWER
                                   R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" TESSERA_SPACES},
       "",
       "tekken"},
      {{TESSERA_WORD TESSERA_UPPER "*" TESSERA_LOWER "+" TESSERA_CONTRACTIONS "?|" TESSERA_WORD TESSERA_UPPER
                                   "+" TESSERA_LOWER "*" TESSERA_CONTRACTIONS
                                   R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" TESSERA_SPACES},
       "gpt-4o",
       ""},
      {{R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" TESSERA_SPACES},
       "deepseek-v3",
       ""},
  };
  return known;
}
#undef TESSERA_CONTRACTIONS
#undef TESSERA_SPACES
#undef TESSERA_UPPER
#undef TESSERA_LOWER
#undef TESSERA_WORD

/// Returns the steps of `key`, which may be null, one step or a sequence.
std::vector<JsonObject> steps_of(const JsonObject& tokenizer, const char* key, const char* sequence) {
  const auto whole = tokenizer.object(key);
  if (!whole) return {};
  if (whole->text("type") != "Sequence") return {*whole};
  std::vector<JsonObject> steps;
  for (const json& step : whole->array(sequence))
    steps.push_back(whole->within(step, fmt::format("{}[{}]", sequence, steps.size())));
  return steps;
}
std::vector<JsonObject> splits_of(const JsonObject& tokenizer) {
  return steps_of(tokenizer, "pre_tokenizer", "pretokenizers");
}
std::vector<JsonObject> normalizers_of(const JsonObject& tokenizer) {
  return steps_of(tokenizer, "normalizer", "normalizers");
}

[[noreturn]] void refuse_step(const JsonObject& step, const char* kind) {
  step.bad("type", fmt::format("the {} {} is not supported with these options", kind, quote_text(step.text("type"))));
}

/// Returns the text of `pattern`, which is an object with one of the keys Regex and String.
std::string pattern_of(const JsonObject& step, const char* kind) {
  const auto pattern = step.object("pattern");
  return pattern ? pattern->text_or(kind, "") : "";
}

bool replaces_spaces(const JsonObject& step) {
  return step.text("type") == "Replace" && pattern_of(step, "String") == " " && step.text_or("content", "") == "\u2581";
}

/// Returns the value of `space_key` for a Metaspace step.
std::string metaspace(const JsonObject& step) {
  if (step.text_or("replacement", "") != "\u2581" || step.flag_or("split", true)) refuse_step(step, "pre-tokenizer");
  const std::string scheme =
      step.text_or("prepend_scheme", step.flag_or("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return "word";
  if (scheme == "first") return "first";
  if (scheme != "never") refuse_step(step, "pre-tokenizer");
  return "";
}

}  // namespace

bool is_byte_level(const JsonObject& tokenizer) {
  for (const JsonObject& step : splits_of(tokenizer))
    if (step.text("type") == "ByteLevel") return true;
  return false;
}

std::string pre_tokenizer_name(const JsonObject& tokenizer, bool ignores_merges) {
  for (const JsonObject& step : normalizers_of(tokenizer))
    if (step.text("type") != "NFC") refuse_step(step, "normalizer");
  std::vector<std::string> patterns;
  bool ended = false;
  for (const JsonObject& step : splits_of(tokenizer)) {
    const std::string type = step.text("type");
    if (ended) refuse_step(step, "pre-tokenizer");
    if (type == "Split" && step.text_or("behavior", "") == "Isolated" && !step.flag_or("invert", false)) {
      patterns.push_back(pattern_of(step, "Regex"));
    } else if (type == "Digits" && step.flag_or("individual_digits", false)) {
      patterns.emplace_back(digit);
    } else if (type == "ByteLevel" && !step.flag_or("add_prefix_space", true)) {
      if (step.flag_or("use_regex", true)) patterns.emplace_back(gpt2);
      ended = true;
    } else {
      refuse_step(step, "pre-tokenizer");
    }
  }
  for (const KnownPatterns& k : known_patterns()) {
    const std::string_view name = ignores_merges ? k.ignoring : k.merging;
    if (!name.empty() && std::ranges::equal(k.patterns, patterns)) return std::string(name);
  }
  tokenizer.bad("pre_tokenizer",
                fmt::format("the pattern {} is not supported{}", quote_text(patterns.empty() ? "" : patterns.front()),
                            ignores_merges ? " with ignore_merges" : ""),
                "Supported are the patterns of GPT-2, Llama 3, Qwen 2, SmolLM, Tekken, GPT-4o and DeepSeek V3");
}

std::string space_before(const JsonObject& tokenizer) {
  std::string when;
  bool replaced = false;
  for (const JsonObject& step : normalizers_of(tokenizer)) {
    if (replaces_spaces(step))
      replaced = true;
    else if (step.text("type") == "Prepend" && step.text_or("prepend", "") == "\u2581" && when.empty())
      when = "fragment";
    else
      refuse_step(step, "normalizer");
  }
  for (const JsonObject& step : splits_of(tokenizer)) {
    const std::string type = step.text("type");
    if (type == "Metaspace" && when.empty()) {
      when = metaspace(step);
      replaced = true;
    } else if (!(type == "Split" && replaced && pattern_of(step, "String") == " ")) {  // no spaces are left
      refuse_step(step, "pre-tokenizer");
    }
  }
  if (!replaced) tokenizer.bad("normalizer", "spaces are not replaced by U+2581, which is not supported");
  return when;
}

}  // namespace tessera::hub
