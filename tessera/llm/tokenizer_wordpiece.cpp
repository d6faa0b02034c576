// SPDX-License-Identifier: Apache-2.0
// WordPiece (Wu et al. 2016) with BERT's normalisation (Devlin et al. 2019), for "bert" vocabularies in GGUF files. The
// first token of a word begins with U+2581, and the others have no mark. A word is divided into the longest tokens from
// left to right, and becomes the unknown token if that fails.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/unicode.h"
#include "tessera/base/unicode_data.h"
#include "tessera/llm/tokenizer.h"
#include "tessera/llm/tokenizer_errors.h"
#include "tessera/llm/tokenizer_tables.h"

namespace tessera {
namespace {

constexpr std::string_view word_mark = "\u2581";
constexpr std::size_t longest_word = 100;  // in characters, as in transformers

/// Ideographs are words of their own. The ranges are those of BERT, with the gap of Hugging Face's tokenizers.
bool is_ideograph(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> ranges[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                                             {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
                                                             {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  return std::ranges::any_of(ranges, [&](const auto& r) { return c >= r.first && c <= r.second; });
}

bool is_white_space(char32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_word_of_its_own(char32_t c) {
  const bool is_ascii_symbol =
      (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 127);
  return is_ascii_symbol || unicode::is_punctuation(c) || is_ideograph(c);
}

/// Returns the normalised words of a text. Invalid UTF-8 is removed, like U+FFFD.
std::vector<std::u32string> words_of(std::string_view text, bool lowercase, bool strips_accents) {
  std::vector<std::u32string> words(1);
  const auto end_word = [&] {
    if (!words.back().empty()) words.emplace_back();
  };
  std::u32string parts;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text.substr(at));
    at += unit.size;
    const char32_t c = unit.code;
    if (unit.kind != Utf8Unit::Kind::character || c == 0 || c == 0xfffd) continue;
    if (is_white_space(c)) {
      end_word();
      continue;
    }
    if (unicode::is_other(c)) continue;
    const bool separates = is_ideograph(c);
    if (separates) end_word();
    parts.clear();
    strips_accents ? unicode::append_without_marks(parts, c) : parts.push_back(c);
    for (const char32_t part : parts) {
      const bool alone = is_word_of_its_own(part);
      if (alone) end_word();
      if (lowercase && part == 0x130)
        words.back() += U"i\u0307";  // the only character whose lower-case form has two characters
      else
        words.back() += lowercase ? unicode::to_lower(part) : part;
      if (alone) end_word();
    }
    if (separates) end_word();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

}  // namespace

void Tokenizer::read_wordpiece(const GgufFile& file) {
  tables_->lowercase = file.get_or<bool>("tokenizer.ggml.normalizer.lowercase", true);
  tables_->strips_accents = file.get_or<bool>("tokenizer.ggml.normalizer.strip_accents", tables_->lowercase);
  space_ = SpaceBefore::fragment;
  for (std::size_t i = 0; i < tables_->tokens.size(); ++i) {
    Token& token = tables_->tokens[i];
    if (token.text.empty() || token.type == TokenType::control || token.type == TokenType::unknown) continue;
    tables_->by_bytes.emplace(token.text, static_cast<TokenId>(i));
    if (token.text.starts_with(word_mark)) token.bytes = " " + token.text.substr(word_mark.size());
  }
}

/// Sets the tokens around a text: [CLS] before it, and [SEP] after it.
void Tokenizer::read_wordpiece_ends(const GgufFile& file) {
  if (!bos_) bos_ = find("[CLS]");
  if (!eos_) eos_ = find("[SEP]");
  if (!unknown_) unknown_ = find("[UNK]");
  const std::pair<const std::optional<TokenId>*, std::string_view> needed[] = {
      {&bos_, "tokenizer.ggml.cls_token_id"},
      {&eos_, "tokenizer.ggml.seperator_token_id"},
      {&unknown_, "tokenizer.ggml.unknown_token_id"}};
  for (const auto& [id, key] : needed)
    if (!*id) throw_tokenizer_error(file, key, "the file does not define this token");
  adds_bos_ = adds_eos_ = true;
}

void Tokenizer::encode_bert(std::string_view text, std::vector<TokenId>& out) const {
  for (const std::u32string& word : words_of(text, tables_->lowercase, tables_->strips_accents)) {
    const std::size_t before = out.size();
    std::string bytes(word_mark);
    std::vector<std::size_t> ends;  // of the characters
    for (const char32_t c : word) append_utf8(bytes, c), ends.push_back(bytes.size());
    std::size_t begin = 0, first = 0;  // the next token begins here; the first character after it
    while (word.size() <= longest_word && first < ends.size()) {
      std::size_t last = ends.size();
      auto found = tables_->by_bytes.end();
      for (; last > first && found == tables_->by_bytes.end(); --last)
        found = tables_->by_bytes.find(std::string_view(bytes).substr(begin, ends[last - 1] - begin));
      if (found == tables_->by_bytes.end()) break;
      if (begin != 0 && found->first.starts_with(word_mark)) break;  // a mark in the text begins no word
      out.push_back(found->second);
      begin = ends[last], first = last + 1;
    }
    if (first == ends.size()) continue;
    out.resize(before);
    out.push_back(*unknown_);
  }
}

}  // namespace tessera
