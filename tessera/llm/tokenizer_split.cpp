// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tokenizer_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tessera/base/error.h"
#include "tessera/base/unicode.h"
#include "tessera/llm/gguf_types.h"

namespace tessera {
namespace {

// The patterns use \p{White_Space} instead of \s, because \s in PCRE2 also matches U+180E, which Unicode no longer
// classifies as a space. Contractions list both cases of each letter, as in llama.cpp, because a case-insensitive "s"
// would also match U+017F.

// GPT-2 (encoder.py).
constexpr std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+)"
                                          R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";
// Llama 3 (tokenizer.py). A word includes one symbol before it, a number has at most three digits, and consecutive line
// ends are one piece.
constexpr std::string_view llama3_pattern =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+|\p{White_Space}+(?!\P{White_Space}))"
    R"(|\p{White_Space}+)";

// Qwen 2 (tokenizer.json). Like Llama 3, but each digit is a separate piece.
constexpr std::string_view qwen2_pattern =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+|\p{White_Space}+(?!\P{White_Space}))"
    R"(|\p{White_Space}+)";

// Qwen 3.5 (tokenizer.json). Like Qwen 2, but marks belong to words.
constexpr std::string_view qwen35_pattern =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\p{White_Space}\p{L}\p{M}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+|\p{White_Space}+(?!\P{White_Space}))"
    R"(|\p{White_Space}+)";

// OpenAI's o200k and Mistral's tekken (tokenizer.json of each). A word is split where upper case follows lower case.
#define TESSERA_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TESSERA_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define TESSERA_SUFFIX R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)"
#define TESSERA_REST \
  R"(| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n/]*|\p{White_Space}*[\r\n]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)"
constexpr std::string_view tekken_pattern =
    R"([^\r\n\p{L}\p{N}]?)" TESSERA_UPPER "*" TESSERA_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" TESSERA_UPPER "+" TESSERA_LOWER
    R"(*|\p{N})" TESSERA_REST;
constexpr std::string_view gpt4o_pattern =
    R"([^\r\n\p{L}\p{N}]?)" TESSERA_UPPER "*" TESSERA_LOWER "+" TESSERA_SUFFIX R"(|[^\r\n\p{L}\p{N}]?)" TESSERA_UPPER
    "+" TESSERA_LOWER "*" TESSERA_SUFFIX R"(|\p{N}{1,3})" TESSERA_REST;
#undef TESSERA_UPPER
#undef TESSERA_LOWER
#undef TESSERA_SUFFIX
#undef TESSERA_REST

// In each of the following lists, a pattern splits the pieces that result from the previous pattern. This list is
// llama.cpp's "default", which is used for files without a pre-tokenizer.
constexpr std::array<std::string_view, 4> default_patterns = {R"([\p{P}$+<=>^~|]+)", gpt2_pattern, R"(\p{N}+)",
                                                              R"([0-9][0-9][0-9])"};
constexpr std::array gpt2_patterns = {gpt2_pattern};
constexpr std::array llama3_patterns = {llama3_pattern};
constexpr std::array qwen2_patterns = {qwen2_pattern};
constexpr std::array qwen35_patterns = {qwen35_pattern};
constexpr std::array tekken_patterns = {tekken_pattern};
constexpr std::array gpt4o_patterns = {gpt4o_pattern};
// StarCoder, SmolLM and Command R split off single digits and then use GPT-2's pattern.
constexpr std::array<std::string_view, 2> digits_patterns = {R"(\p{N})", gpt2_pattern};
constexpr std::array<std::string_view, 3> falcon_patterns = {R"([\p{P}$+<=>^~|`]+)", gpt2_pattern,
                                                             R"([0-9][0-9][0-9])"};
// DeepSeek (tokenizer.json of DeepSeek LLM, Coder and V3). The original lists all cased letters. The patterns below
// match the same letters: the cased letters of Unicode except for seven ranges.
constexpr std::array<std::string_view, 6> deepseek_llm_patterns = {
    R"([\r\n])",
    R"(\p{White_Space}?(?:(?![\x{560}-\x{588}\x{10c7}-\x{10ff}\x{1c80}-\x{1c88}\x{2d00}-\x{2d2d}\x{a790}-\x{ab68})"
    R"(\x{10570}-\x{105bc}\x{16e40}-\x{1df1e}])[\p{Lu}\p{Ll}\p{Lt}])+)",
    R"(\p{White_Space}?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)",
    R"(\p{White_Space}+\z)",
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)",
    R"(\p{N}+)"};
constexpr std::array<std::string_view, 5> deepseek_coder_patterns = {
    R"([\r\n])", R"(\p{White_Space}?\p{L}+)", R"(\p{White_Space}?\p{P}+)",
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)", R"(\p{N})"};
constexpr std::array<std::string_view, 3> deepseek_v3_patterns = {
    R"(\p{N}{1,3})", R"([\x{4e00}-\x{9fa5}\x{3040}-\x{30ff}]+)",
    R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\p{White_Space}*[\r\n]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)"};

struct Family {
  std::string_view name;
  std::span<const std::string_view> patterns;
  bool ignores_merges = false;
  bool adds_bos = false;
};
constexpr std::array families = {
    Family{"default", default_patterns},
    Family{"gpt-2", gpt2_patterns},
    Family{"gpt2", gpt2_patterns},
    Family{"phi-2", gpt2_patterns},
    Family{"olmo", gpt2_patterns},
    Family{"mpt", gpt2_patterns},
    Family{"exaone4", gpt2_patterns},
    Family{"llama-bpe", llama3_patterns, true, true},
    Family{"llama3", llama3_patterns, true, true},
    Family{"llama-v3", llama3_patterns, true, true},
    Family{"falcon3", llama3_patterns, true, true},
    Family{"pixtral", llama3_patterns, true, true},
    Family{"lfm2", llama3_patterns, true, true},
    Family{"dbrx", llama3_patterns},
    Family{"smaug-bpe", llama3_patterns},
    Family{"chatglm-bpe", llama3_patterns},
    Family{"glm4", llama3_patterns, true},
    Family{"qwen2", qwen2_patterns},
    Family{"qwen35", qwen35_patterns},
    Family{"deepseek-r1-qwen", qwen2_patterns},
    Family{"megrez", qwen2_patterns},
    Family{"stablelm2", qwen2_patterns},
    Family{"hunyuan", qwen2_patterns},
    Family{"deepseek-llm", deepseek_llm_patterns},
    Family{"deepseek-coder", deepseek_coder_patterns},
    Family{"deepseek-v3", deepseek_v3_patterns},
    Family{"hunyuan-dense", deepseek_v3_patterns},
    Family{"tekken", tekken_patterns, true, true},
    Family{"gpt-4o", gpt4o_patterns},
    Family{"llama4", gpt4o_patterns},
    Family{"smollm", digits_patterns},
    Family{"starcoder", digits_patterns},
    Family{"refact", digits_patterns},
    Family{"command-r", digits_patterns},
    Family{"codeshell", digits_patterns},
    Family{"exaone", digits_patterns},
    Family{"falcon", falcon_patterns},
};

// PCRE2's limits on matching steps and memory are disabled, because they would reject long texts.
constexpr std::uint32_t no_limit = 0xffffffffu;

}  // namespace

struct PreTokenizer::Pattern {
  explicit Pattern(std::string_view text) {
    int code_of_error = 0;
    PCRE2_SIZE where = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &code_of_error,
                         &where, nullptr);
    context = pcre2_match_context_create(nullptr);
    if (code == nullptr || context == nullptr) {
      free_all();
      fail<Error>({.operation = "compile tokenizer pattern",
                   .with = {{"pattern", std::string(text)}, {"offset", std::to_string(where)}},
                   .wrong = "PCRE2 rejects the pattern",
                   .remedy = "Install PCRE2 10.40 or later with Unicode support"});
    }
    pcre2_set_match_limit(context, no_limit);
    pcre2_set_heap_limit(context, no_limit);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, PCRE2 interprets the pattern
  }
  ~Pattern() { free_all(); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Appends the matches in `text` and the text between matches. `text` must be valid UTF-8.
  void split(std::string_view text, pcre2_match_data* match, std::vector<std::string_view>& out) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::size_t done = 0;
    while (done < text.size()) {
      int found = pcre2_match(code, subject, text.size(), done, PCRE2_NO_UTF_CHECK, match, context);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code, subject, text.size(), done, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, context);
      if (found == PCRE2_ERROR_NOMEMORY)
        fail<OutOfMemory>({.operation = "tokenize",
                           .with = {{"bytes", std::to_string(text.size())}},
                           .wrong = "out of memory while splitting the text"});
      if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        fail<Error>({.operation = "tokenize",
                     .with = {{"PCRE2 error", std::to_string(found)}},
                     .wrong = "the text could not be split"});
      if (found < 0) break;
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
      if (bounds[0] > done) out.push_back(text.substr(done, bounds[0] - done));
      out.push_back(text.substr(bounds[0], bounds[1] - bounds[0]));  // no pattern matches an empty string
      done = bounds[1];
    }
    if (done < text.size()) out.push_back(text.substr(done));
  }

  void free_all() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }

  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
};

PreTokenizer::PreTokenizer(std::string_view name) {
  for (const Family& family : families) {
    if (family.name != name) continue;
    for (const std::string_view pattern : family.patterns) patterns_.push_back(std::make_unique<Pattern>(pattern));
    ignores_merges_ = family.ignores_merges;
    adds_bos_ = family.adds_bos;
    return;
  }
  fail<FormatError>({.operation = "make tokenizer",
                     .with = {{"tokenizer.ggml.pre", quote_text(name)}},
                     .wrong = "this pre-tokenizer is not supported",
                     .remedy = "Supported pre-tokenizers: " + supported()});
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                  &pcre2_match_data_free);
  if (match == nullptr) fail<OutOfMemory>({.operation = "tokenize", .wrong = "out of memory while splitting the text"});

  std::vector<std::string_view> current, next;
  while (!text.empty()) {
    // Find the longest prefix that contains either only valid characters or only invalid bytes.
    std::size_t end = 0;
    const bool valid = utf8_unit(text).kind == Utf8Unit::Kind::character;
    while (end < text.size()) {
      const Utf8Unit unit = utf8_unit(text.substr(end));
      if ((unit.kind == Utf8Unit::Kind::character) != valid) break;
      end += unit.size;
    }
    current.assign(1, text.substr(0, end));
    text.remove_prefix(end);
    if (valid) {
      for (const auto& pattern : patterns_) {
        next.clear();
        for (const std::string_view piece : current) pattern->split(piece, match.get(), next);
        current.swap(next);
      }
    }
    pieces.insert(pieces.end(), current.begin(), current.end());
  }
}

bool PreTokenizer::known(std::string_view name) {
  return std::any_of(families.begin(), families.end(), [&](const Family& f) { return f.name == name; });
}

std::string PreTokenizer::supported() {
  std::string out;
  for (const Family& family : families) out += (out.empty() ? "" : ", ") + std::string(family.name);
  return out;
}

}  // namespace tessera
