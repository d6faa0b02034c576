// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE (GPT-2), for "gpt2" vocabularies in GGUF files.
#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "tessera/base/unicode.h"
#include "tessera/llm/nfc.h"
#include "tessera/llm/tokenizer.h"
#include "tessera/llm/tokenizer_errors.h"
#include "tessera/llm/tokenizer_tables.h"

namespace tessera {
namespace {

// GPT-2's table: printable bytes map to the same character, and all other bytes map to U+0100, U+0101, ...
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

// Decodes a vocabulary entry. A character that is not in the table is copied, and `whole` is set to false. Tokens that
// were added to a vocabulary as plain text contain such characters.
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

}  // namespace

void Tokenizer::read_bytes_of_gpt2() {
  tables_->byte_ids.fill(no_token);
  for (std::size_t i = 0; i < tables_->tokens.size(); ++i) {
    Token& token = tables_->tokens[i];
    // Old converters use the token type `byte`, which is meant for SentencePiece.
    const bool plain =
        token.type == TokenType::normal || token.type == TokenType::undefined || token.type == TokenType::byte;
    if (!plain || token.text.empty()) continue;
    bool whole = false;
    token.bytes = bytes_of(token.text, whole);
    if (!whole) continue;
    tables_->by_bytes.emplace(token.bytes, static_cast<TokenId>(i));
    if (token.bytes.size() == 1)
      tables_->byte_ids[static_cast<unsigned char>(token.bytes[0])] = static_cast<TokenId>(i);
  }
}

void Tokenizer::read_merges(const GgufFile& file) {
  constexpr std::string_view key = "tokenizer.ggml.merges";
  const std::vector<std::string>& lines = file.get_strings(key);
  tables_->merges.reserve(lines.size());
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    const std::string_view line = lines[rank];
    // Tokens do not contain spaces, so the first space is the separator. The left token must not be empty.
    const std::size_t space = line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size())
      throw_tokenizer_error(
          file, key, fmt::format("merge {} is {}; expected two tokens separated by a space", rank, quote_text(line)));
    const auto left = find(line.substr(0, space)), right = find(line.substr(space + 1));
    const auto result = find(std::string(line.substr(0, space)).append(line.substr(space + 1)));
    if (!left || !right || !result) continue;  // ignored, as in llama.cpp
    const std::uint64_t pair = static_cast<std::uint64_t>(*left) << 32 | static_cast<std::uint32_t>(*right);
    tables_->merges.emplace(pair, Merge{static_cast<std::uint32_t>(rank), *result});  // keeps the first of equal lines
  }
}

const Tokenizer::Merge* Tokenizer::find_merge(TokenId left, TokenId right) const {
  if (left < 0 || right < 0) return nullptr;
  const auto it = tables_->merges.find(static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right));
  return it == tables_->merges.end() ? nullptr : &it->second;
}

void Tokenizer::encode_gpt2(std::string_view text, std::vector<TokenId>& out) const {
  std::string normalised;
  if (tables_->nfc) text = normalised = to_nfc(text);
  std::vector<std::string_view> pieces;
  tables_->pre.split(text, pieces);
  for (const std::string_view piece : pieces) {
    if (tables_->pre.ignores_merges()) {
      const auto whole = tables_->by_bytes.find(piece);
      if (whole != tables_->by_bytes.end()) {
        out.push_back(whole->second);
        continue;
      }
    }
    encode_piece(piece, out);
  }
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<TokenId>& out) const {
  // The symbols form a doubly linked list. A priority queue contains the possible merges of neighbours, ordered by rank
  // and then by position. Stale entries are skipped when they are popped.
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
  constexpr TokenId missing = -3;
  std::vector<Symbol> symbols(piece.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    TokenId id = tables_->byte_ids[byte];
    if (id == no_token) id = missing;  // a byte without a token is never merged and is dropped at the end
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
    // Only merges change ids. If both ids are unchanged, the two symbols are still neighbours.
    if (symbol(best.left).id != best.left_id || symbol(best.right).id != best.right_id) continue;
    symbol(best.left).id = best.result;
    symbol(best.right).id = gone;
    const std::int64_t after = symbol(best.right).next;
    symbol(best.left).next = after;
    if (after >= 0) symbol(after).previous = best.left;
    consider(symbol(best.left).previous, best.left);
    consider(best.left, after);
  }
  for (std::int64_t i = 0; i >= 0 && i < count; i = symbol(i).next)
    if (symbol(i).id != missing) out.push_back(symbol(i).id);
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, byte_characters[static_cast<unsigned char>(byte)]);
  return text;
}

}  // namespace tessera
