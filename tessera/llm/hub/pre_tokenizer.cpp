// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/hub/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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
      {{TESSERA_CONTRACTIONS "|" TESSERA_WORD R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" TESSERA_SPACES},
       "qwen35",
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

/// Decodes base64 (RFC 4648), or returns std::nullopt.
std::optional<std::vector<std::int32_t>> bytes_of_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::int32_t> bytes;
  std::uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const std::size_t digit = digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<std::int32_t>(bits >> count & 0xff));
  }
  return bytes;
}

}  // namespace

BertText bert_text(const JsonObject& tokenizer) {
  BertText out{false, false};
  for (const JsonObject& step : normalizers_of(tokenizer)) {
    if (step.text("type") != "BertNormalizer" || !step.flag_or("clean_text", true) ||
        !step.flag_or("handle_chinese_chars", true))
      refuse_step(step, "normalizer");
    out.lowercase = step.flag_or("lowercase", true);
    out.strips_accents = step.flag_or("strip_accents", out.lowercase);
  }
  const std::vector<JsonObject> splits = splits_of(tokenizer);
  for (const JsonObject& step : splits)
    if (step.text("type") != "BertPreTokenizer") refuse_step(step, "pre-tokenizer");
  if (splits.size() != 1 || normalizers_of(tokenizer).size() != 1)
    tokenizer.bad("normalizer", "WordPiece is supported only with BertNormalizer and BertPreTokenizer");
  return out;
}

bool lowercases(const JsonObject& tokenizer) {
  return std::ranges::any_of(normalizers_of(tokenizer), [](const JsonObject& step) {
    return step.text("type") == "BertNormalizer" && step.flag_or("lowercase", true);
  });
}

std::vector<std::int32_t> unigram_charsmap(const JsonObject& tokenizer) {
  std::vector<std::int32_t> charsmap;
  bool strips = false, merges = false;  // whether the normalizer removes spaces at the end, and merges spaces
  for (const JsonObject& step : normalizers_of(tokenizer)) {
    const std::string type = step.text("type");
    if (type == "Precompiled" && charsmap.empty() && !strips && !merges) {
      auto bytes = bytes_of_base64(step.text("precompiled_charsmap"));
      if (!bytes) step.bad("precompiled_charsmap", "this is not base64");
      charsmap = std::move(*bytes);
    } else if (type == "Replace") {
      const std::string content = step.text_or("content", "");
      if (pattern_of(step, "Regex") != " {2,}" || (content != " " && content != "\u2581"))
        refuse_step(step, "normalizer");
      merges = true;
      if (content != " " && !strips)
        step.bad("content", "a space at the end of the text becomes U+2581, which is not supported",
                 "Supported is this step after Strip with strip_right");
    } else if (type == "Strip" && step.flag_or("strip_right", false)) {
      strips = true;
    } else {
      refuse_step(step, "normalizer");
    }
  }
  bool marks_spaces = false, splits = false;
  for (const JsonObject& step : splits_of(tokenizer)) {
    const std::string type = step.text("type");
    if (type == "Metaspace" && !marks_spaces && step.text_or("replacement", "") == "\u2581" &&
        step.text_or("prepend_scheme", step.flag_or("add_prefix_space", true) ? "always" : "never") == "always")
      marks_spaces = true;
    else if (type == "WhitespaceSplit" && !marks_spaces)
      splits = true;
    else
      refuse_step(step, "pre-tokenizer");
  }
  if (!marks_spaces) tokenizer.bad("pre_tokenizer", "Unigram is supported only with a space (U+2581) before each word");
  if (charsmap.empty())
    tokenizer.bad("normalizer", "Unigram is supported only with the character map of a Precompiled step");
  if (!splits && !(merges && strips))
    tokenizer.bad("normalizer",
                  fmt::format("Unigram is supported only without extra spaces, but no step {}",
                              merges ? "removes spaces at the end of the text" : "merges spaces"),
                  "Supported are the pre-tokenizer WhitespaceSplit, or the normalizers Strip with strip_right and "
                  "Replace of the regular expression \" {2,}\"");
  return charsmap;
}

bool is_byte_level(const JsonObject& tokenizer) {
  for (const JsonObject& step : splits_of(tokenizer))
    if (step.text("type") == "ByteLevel") return true;
  return false;
}

bool uses_nfc(const JsonObject& tokenizer) {
  const std::vector<JsonObject> steps = normalizers_of(tokenizer);
  return std::ranges::any_of(steps, [](const JsonObject& step) { return step.text("type") == "NFC"; });
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
                "Supported are the patterns of GPT-2, Llama 3, Qwen 2 and 3.5, SmolLM, Tekken, GPT-4o and DeepSeek V3");
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
