// SPDX-License-Identifier: Apache-2.0
// Unigram language model (Kudo 2018) with SentencePiece's normalisation, for "t5" vocabularies in GGUF files (XLM-R,
// T5). A text becomes the tokens whose scores have the largest sum.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/unicode.h"
#include "tessera/llm/grammar/token_trie.h"
#include "tessera/llm/tokenizer.h"
#include "tessera/llm/tokenizer_errors.h"
#include "tessera/llm/tokenizer_tables.h"

namespace tessera {
namespace {

constexpr std::string_view escaped_space = "\u2581";
constexpr double unknown_penalty = 10;  // an unknown character scores this much less than any token

/// Returns the child of `node` with this byte, or 0.
std::uint32_t child_of(const grammar::TokenTrie& trie, std::uint32_t node, std::uint8_t byte) {
  const std::uint32_t end = node == 0 ? trie.size() : trie.end(node);
  for (std::uint32_t child = node + 1; child < end && trie.byte(child) <= byte; child = trie.end(child))
    if (trie.byte(child) == byte) return child;
  return 0;
}

}  // namespace

void Tokenizer::read_unigrams(const GgufFile& file) {
  read_scores(file);
  Tables& t = *tables_;
  for (std::size_t i = 0; i < t.scores.size(); ++i)
    if (!(std::abs(t.scores[i]) <= 1e30f))
      throw_tokenizer_error(file, "tokenizer.ggml.scores", fmt::format("token {} has the score {}", i, t.scores[i]));
  std::vector<std::string_view> texts(t.tokens.size());
  double lowest = 0;
  for (std::size_t i = 0; i < t.tokens.size(); ++i) {
    Token& token = t.tokens[i];
    if (token.type == TokenType::byte)
      throw_tokenizer_error(
          file, "tokenizer.ggml.token_type",
          fmt::format("token {} is a byte, and Unigram vocabularies with bytes are not supported", i));
    if (token.type == TokenType::normal) lowest = std::min(lowest, static_cast<double>(t.scores[i]));
    if (token.type == TokenType::user_defined) t.scores[i] = 0;
    if (token.type == TokenType::normal || token.type == TokenType::user_defined || token.type == TokenType::unused)
      texts[i] = token.text;
    if (token.type != TokenType::user_defined) {
      token.bytes.clear();
      for (std::string_view rest = token.text; !rest.empty();) {
        const bool is_space = rest.starts_with(escaped_space);
        token.bytes += is_space ? ' ' : rest[0];
        rest.remove_prefix(is_space ? escaped_space.size() : 1);
      }
    }
  }
  t.unigrams = std::make_shared<const grammar::TokenTrie>(std::span<const std::string_view>(texts));
  t.unknown_score = lowest - unknown_penalty;
  if (constexpr std::string_view key = "tokenizer.ggml.precompiled_charsmap"; file.has(key))
    t.charsmap = CharsMap(file, key);
  t.merges_spaces = file.get_or<bool>("tokenizer.ggml.remove_extra_whitespaces", false);
  if (file.get_or<bool>("tokenizer.ggml.add_space_prefix", true)) space_ = SpaceBefore::fragment;
  if (file.get_or<bool>("tokenizer.ggml.treat_whitespace_as_suffix", false))
    throw_tokenizer_error(file, "tokenizer.ggml.treat_whitespace_as_suffix", "spaces after words are not supported");
  if (!file.get_or<bool>("tokenizer.ggml.escape_whitespaces", true))
    throw_tokenizer_error(file, "tokenizer.ggml.escape_whitespaces", "tokens with plain spaces are not supported");
}

/// Applies the character map, and writes spaces as U+2581: as they are, or one before each word.
std::string Tokenizer::normalised_for_t5(std::string_view text) const {
  std::string out;
  bool in_word = false, began = false;
  const auto append = [&](std::string_view part) {
    for (const char c : part) {
      if (c == ' ') {
        in_word = false;
        if (!tables_->merges_spaces) out += escaped_space;
        continue;
      }
      if (!in_word &&
          (tables_->merges_spaces ? began || space_ != SpaceBefore::never : !began && space_ != SpaceBefore::never))
        out += escaped_space;
      in_word = began = true;
      out += c;
    }
  };
  while (!text.empty()) {
    if (const auto [length, replacement] = tables_->charsmap.longest_match(text); length > 0) {
      append(replacement);
      text.remove_prefix(length);
      continue;
    }
    const Utf8Unit unit = utf8_unit(text);
    const bool valid = unit.kind == Utf8Unit::Kind::character;
    append(valid ? text.substr(0, unit.size) : "\ufffd");
    text.remove_prefix(valid ? unit.size : 1);
  }
  while (tables_->merges_spaces && out.ends_with(escaped_space)) out.resize(out.size() - escaped_space.size());
  return out;
}

void Tokenizer::encode_t5(std::string_view given, std::vector<TokenId>& out) const {
  const std::string text = normalised_for_t5(given);
  const grammar::TokenTrie& trie = *tables_->unigrams;
  // The best tokens up to each byte: the last token, where it begins, and the sum of the scores.
  struct Best {
    TokenId id = no_token;
    std::size_t begin = 0;
    double score = -std::numeric_limits<double>::infinity();
  };
  std::vector<Best> best(text.size() + 1);
  best[0].score = 0;
  const auto offer = [&](std::size_t begin, std::size_t end, TokenId id, double score) {
    if (const double sum = best[begin].score + score; sum > best[end].score) best[end] = {id, begin, sum};
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = utf8_unit(std::string_view(text).substr(at)).size;  // valid after the normalisation
    bool is_known = false;
    std::uint32_t node = 0;
    for (std::size_t end = at; end < text.size();) {
      node = child_of(trie, node, static_cast<std::uint8_t>(text[end++]));
      if (node == 0) break;
      if (trie.ids(node).empty()) continue;
      is_known = is_known || end == at + size;
      const TokenId id = trie.ids(node)[0];
      offer(at, end, id, static_cast<double>(tables_->scores[static_cast<std::size_t>(id)]));
    }
    if (!is_known) offer(at, at + size, *unknown_, tables_->unknown_score);
    at += size;
  }
  std::vector<TokenId> reversed;
  for (std::size_t at = text.size(); at > 0; at = best[at].begin)
    if (best[at].id != *unknown_ || reversed.empty() || reversed.back() != *unknown_)  // neighbours become one token
      reversed.push_back(best[at].id);
  out.insert(out.end(), reversed.rbegin(), reversed.rend());
}

}  // namespace tessera
