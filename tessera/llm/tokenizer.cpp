// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/unicode.h"

namespace tessera {
namespace {

constexpr TokenId none = -1;

// GPT-2's table: bytes that print stand for themselves, the others for the characters from U+0100 on, in order.
constexpr std::array<char32_t, 256> byte_characters = [] {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    out[b] = printable ? b : next++;
  }
  return out;
}();
constexpr std::size_t character_count = 0x100 + 68;
constexpr auto character_bytes = [] {
  std::array<int, character_count> out{};
  for (int& b : out) b = -1;
  for (int b = 0; b < 256; ++b) out[byte_characters[static_cast<std::size_t>(b)]] = b;
  return out;
}();

// The bytes that a vocabulary entry stands for. A character outside the table (a token that its author wrote as plain
// text) stands for itself; `whole` says whether there was none.
std::string bytes_of(std::string_view text, bool& whole) {
  std::string out;
  whole = true;
  while (!text.empty()) {
    const Utf8Unit unit = utf8_unit(text);
    if (unit.kind == Utf8Unit::Kind::character && unit.code < character_count && character_bytes[unit.code] >= 0) {
      out += static_cast<char>(character_bytes[unit.code]);
    } else {
      out += text.substr(0, unit.size);
      whole = false;
    }
    text.remove_prefix(unit.size);
  }
  return out;
}

// Texts with which the common families end a turn or a document; not every file names all of its end tokens in a key.
constexpr std::array<std::string_view, 8> end_texts = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>",
                                                       "<|im_end|>", "<|end|>",    "<end_of_turn>",   "<EOT>"};

[[noreturn]] void refuse(const GgufFile& file, std::string_view key, std::string wrong, std::string todo = {}) {
  fail<FormatError>({.asked = "make tokenizer",
                     .with = {{"file", file.name()}, {"key", std::string(key)}},
                     .wrong = std::move(wrong),
                     .todo = std::move(todo)});
}

std::string require_model(const GgufFile& file) {
  const auto model = file.get<std::string>("tokenizer.ggml.model");
  if (model != "gpt2")
    refuse(file, "tokenizer.ggml.model", fmt::format("the tokenizer {} is not supported", quote_text(model)),
           "Supported is \"gpt2\", the byte-level BPE of GPT-2, Llama 3 and their relatives");
  return file.get_or<std::string>("tokenizer.ggml.pre", "default");
}

}  // namespace

Tokenizer::Tokenizer(const GgufFile& file) : pre_(require_model(file)) {
  read_vocabulary(file);
  read_merges(file);
  read_special(file);
}

void Tokenizer::read_vocabulary(const GgufFile& file) {
  constexpr std::string_view tokens_key = "tokenizer.ggml.tokens", types_key = "tokenizer.ggml.token_type";
  const std::vector<std::string>& texts = file.get_strings(tokens_key);
  if (texts.empty() || texts.size() > 0x7fffffffu)
    refuse(file, tokens_key, fmt::format("the vocabulary has {} tokens", texts.size()));
  std::vector<std::int32_t> types;
  if (file.has(types_key)) {
    types = file.get_array<std::int32_t>(types_key);
    if (types.size() != texts.size())
      refuse(file, types_key, fmt::format("{} types are given for {} tokens", types.size(), texts.size()));
  }
  tokens_.resize(texts.size());
  byte_ids_.fill(none);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Token& token = tokens_[i];
    if (!types.empty()) {
      if (types[i] < 0 || types[i] > 6)
        refuse(file, types_key, fmt::format("token {} has type {}, the format knows 0 to 6", i, types[i]));
      token.type = static_cast<TokenType>(types[i]);
    }
    token.text = texts[i];
    bool whole = false;
    token.bytes = bytes_of(token.text, whole);
    const auto id = static_cast<TokenId>(i);
    // Some converters fill the vocabulary up with empty tokens: they are never found.
    if (token.text.empty()) continue;
    const auto [other, is_new] = by_text_.emplace(token.text, id);
    if (!is_new)
      refuse(file, tokens_key,
             fmt::format("the token {} occurs twice ({} and {})", quote_text(token.text), other->second, id));
    const bool plain = token.type == TokenType::normal || token.type == TokenType::undefined;
    if (!plain) token.bytes = token.text;
    if (plain && whole) {
      by_bytes_.emplace(token.bytes, id);
      if (token.bytes.size() == 1) byte_ids_[static_cast<unsigned char>(token.bytes[0])] = id;
    }
  }
}

void Tokenizer::read_merges(const GgufFile& file) {
  constexpr std::string_view key = "tokenizer.ggml.merges";
  const std::vector<std::string>& lines = file.get_strings(key);
  merges_.reserve(lines.size());
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    const std::string_view line = lines[rank];
    // Spaces within tokens are written as another character, so the first one separates (not at 0: an empty left part).
    const std::size_t space = line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size())
      refuse(file, key, fmt::format("merge {} is {}, not two tokens with a space between", rank, quote_text(line)));
    const auto left = find(line.substr(0, space)), right = find(line.substr(space + 1));
    const auto result = find(std::string(line.substr(0, space)).append(line.substr(space + 1)));
    if (!left || !right || !result)
      refuse(file, key,
             fmt::format("merge {} is {}: its {} is no token", rank, quote_text(line),
                         !left    ? "left part"
                         : !right ? "right part"
                                  : "result"));
    const std::uint64_t pair = static_cast<std::uint64_t>(*left) << 32 | static_cast<std::uint32_t>(*right);
    merges_.emplace(pair, Merge{static_cast<std::uint32_t>(rank), *result});  // of equal lines the first counts
  }
}

void Tokenizer::read_special(const GgufFile& file) {
  const auto id_of = [&](std::string_view key) -> std::optional<TokenId> {
    const auto id = file.find_as<std::uint32_t>(key);
    if (!id) return std::nullopt;
    if (*id >= tokens_.size())
      refuse(file, key, fmt::format("the id is {}, the vocabulary has {} tokens", *id, tokens_.size()));
    return static_cast<TokenId>(*id);
  };
  bos_ = id_of("tokenizer.ggml.bos_token_id");
  eos_ = id_of("tokenizer.ggml.eos_token_id");
  unknown_ = id_of("tokenizer.ggml.unknown_token_id");
  for (const auto key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = id_of(key)) ends_.push_back(*id);

  const auto flag = [&](std::string_view key, const std::optional<TokenId>& id, bool otherwise) {
    const auto wanted = file.find_as<bool>(key);
    if (wanted.value_or(false) && !id) refuse(file, key, "it is true, and the file names no such token");
    return wanted.value_or(otherwise) && id;
  };
  adds_bos_ = flag("tokenizer.ggml.add_bos_token", bos_, pre_.adds_bos());
  adds_eos_ = flag("tokenizer.ggml.add_eos_token", eos_, false);

  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    const auto id = static_cast<TokenId>(i);
    if (token.type == TokenType::control &&
        std::find(end_texts.begin(), end_texts.end(), token.text) != end_texts.end())
      ends_.push_back(id);
    const bool special =
        token.type == TokenType::control || token.type == TokenType::user_defined || token.type == TokenType::unknown;
    if (special && !token.text.empty()) special_.push_back(id);
  }
  std::sort(ends_.begin(), ends_.end());
  ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
  std::stable_sort(special_.begin(), special_.end(),
                   [&](TokenId a, TokenId b) { return token(a).text.size() > token(b).text.size(); });
}

const Tokenizer::Token& Tokenizer::token(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size())
    fail<ArgumentError>({.asked = "tokenizer",
                         .with = {{"id", std::to_string(id)}, {"tokens", std::to_string(tokens_.size())}},
                         .wrong = "there is no such token"});
  return tokens_[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::find(std::string_view text) const {
  const auto it = by_text_.find(text);
  return it == by_text_.end() ? std::nullopt : std::optional(it->second);
}

bool Tokenizer::is_end(TokenId id) const { return std::binary_search(ends_.begin(), ends_.end(), id); }

std::string_view Tokenizer::decode(TokenId id, bool special) const {
  const Token& t = token(id);
  const bool hidden = t.type == TokenType::control || t.type == TokenType::unknown;
  return hidden && !special ? std::string_view() : std::string_view(t.bytes);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string out;
  for (const TokenId id : ids) out += decode(id, special);
  return out;
}

const Tokenizer::Merge* Tokenizer::find_merge(TokenId left, TokenId right) const {
  if (left == none || right == none) return nullptr;
  const auto it = merges_.find(static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right));
  return it == merges_.end() ? nullptr : &it->second;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  // Fragments of the text: those that are special tokens already, and those that are still text (id `none`).
  struct Fragment {
    std::string_view text;
    TokenId id;
  };
  std::vector<Fragment> fragments{{text, none}}, next;
  for (const TokenId id : special_) {
    const Token& special = tokens_[static_cast<std::size_t>(id)];
    if (!options.parse_special && special.type != TokenType::user_defined) continue;
    // The longest token cuts first, wherever it stands: llama.cpp's order.
    next.clear();
    bool found = false;
    for (const Fragment& fragment : fragments) {
      if (fragment.id != none) {
        next.push_back(fragment);
        continue;
      }
      std::string_view rest = fragment.text;
      for (std::size_t at; (at = rest.find(special.text)) != std::string_view::npos; found = true) {
        if (at != 0) next.push_back({rest.substr(0, at), none});
        next.push_back({rest.substr(at, special.text.size()), id});
        rest.remove_prefix(at + special.text.size());
      }
      if (!rest.empty()) next.push_back({rest, none});
    }
    if (found) fragments.swap(next);
  }

  std::vector<TokenId> out;
  if (options.add_special && adds_bos_) out.push_back(*bos_);
  for (const Fragment& fragment : fragments) {
    if (fragment.id != none)
      out.push_back(fragment.id);
    else
      encode_plain(fragment.text, out);
  }
  if (options.add_special && adds_eos_) out.push_back(*eos_);
  return out;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<std::string_view> pieces;
  pre_.split(text, pieces);
  for (const std::string_view piece : pieces) {
    if (pre_.ignores_merges()) {
      const auto whole = by_bytes_.find(piece);
      if (whole != by_bytes_.end()) {
        out.push_back(whole->second);
        continue;
      }
    }
    encode_piece(piece, out);
  }
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<TokenId>& out) const {
  // A doubly linked list of symbols, and a queue of the merges that are possible between neighbours: the lowest rank
  // first, of equal ones the leftmost. Entries whose symbols have changed meanwhile are skipped when they come up.
  struct Symbol {
    TokenId id;
    std::int64_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank;
    TokenId left_id, right_id, result;
    std::int64_t left, right;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
  };
  const auto count = static_cast<std::int64_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    TokenId id = byte_ids_[byte];
    if (id == none) {
      if (!unknown_)
        fail<ArgumentError>({.asked = "tokenize",
                             .with = {{"byte", fmt::format("{:#04x}", byte)}},
                             .wrong = "the vocabulary has a token neither for this byte nor for the unknown"});
      id = *unknown_;
    }
    symbols[static_cast<std::size_t>(i)] = {id, i - 1, i + 1 < count ? i + 1 : -1};
  }

  constexpr TokenId gone = -2;  // merged into its left neighbour
  const auto symbol = [&](std::int64_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::int64_t left, std::int64_t right) {
    if (left < 0 || right < 0) return;
    const TokenId a = symbol(left).id, b = symbol(right).id;
    if (const Merge* merge = find_merge(a, b)) queue.push({merge->rank, a, b, merge->result, left, right});
  };
  for (std::int64_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    // Ids only change by growing, so equal ids mean that neither side has changed and both are still neighbours.
    if (symbol(best.left).id != best.left_id || symbol(best.right).id != best.right_id) continue;
    symbol(best.left).id = best.result;
    symbol(best.right).id = gone;
    const std::int64_t after = symbol(best.right).next;
    symbol(best.left).next = after;
    if (after >= 0) symbol(after).previous = best.left;
    consider(symbol(best.left).previous, best.left);
    consider(best.left, after);
  }
  for (std::int64_t i = 0; i >= 0 && i < count; i = symbol(i).next) out.push_back(symbol(i).id);
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, byte_characters[static_cast<unsigned char>(byte)]);
  return text;
}

}  // namespace tessera
