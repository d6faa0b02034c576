// SPDX-License-Identifier: Apache-2.0
// SentencePiece BPE with byte fallback (Kudo and Richardson 2018), for "llama" vocabularies in GGUF files. Spaces are
// written as U+2581. The neighbours whose merged token has the highest score are merged first. Vocabularies of folders
// have ranked merges instead of scores. An unknown character is replaced by byte tokens such as "<0x0A>".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>

#include "tessera/base/unicode.h"
#include "tessera/llm/tokenizer.h"
#include "tessera/llm/tokenizer_errors.h"
#include "tessera/llm/tokenizer_tables.h"

namespace tessera {
namespace {

constexpr std::string_view space = "\u2581";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size()))
    out.append(text.substr(0, at)).append(to);
  return out.append(text);
}

/// Returns the byte that a token such as "<0x0A>" represents, or -1 if it is not a byte token.
int named_byte(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int byte = 0;
  for (const char c : text.substr(3, 2)) {
    const std::size_t digit = std::string_view("0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) return -1;
    byte = byte * 16 + static_cast<int>(digit);
  }
  return byte;
}

}  // namespace

void Tokenizer::read_bytes_of_llama() {
  tables_->byte_ids.fill(no_token);
  for (std::size_t i = 0; i < tables_->tokens.size(); ++i) {
    Token& token = tables_->tokens[i];
    const auto id = static_cast<TokenId>(i);
    if (token.text.empty()) continue;
    const int byte = named_byte(token.text);
    if (token.type == TokenType::byte && byte >= 0) {
      token.bytes = std::string(1, static_cast<char>(byte));
      tables_->byte_ids[static_cast<std::size_t>(byte)] = id;
    } else if (token.type == TokenType::normal || token.type == TokenType::undefined) {
      token.bytes = replaced(token.text, space, " ");
      tables_->by_bytes.emplace(token.text,
                                id);  // the key contains U+2581 for spaces, like the text that is looked up
    } else if (token.type == TokenType::user_defined) {
      tables_->by_bytes.emplace(token.text, id);
    }
  }
  // If the vocabulary has no byte token for a byte, use the normal token that consists of this byte.
  for (const auto& [text, id] : tables_->by_bytes)
    if (text.size() == 1 && tables_->byte_ids[static_cast<unsigned char>(text[0])] == no_token)
      tables_->byte_ids[static_cast<unsigned char>(text[0])] = id;
}

void Tokenizer::read_scores(const GgufFile& file) {
  constexpr std::string_view key = "tokenizer.ggml.scores";
  tables_->scores = file.get_array<float>(key);
  if (tables_->scores.size() != tables_->tokens.size())
    throw_tokenizer_error(
        file, key, fmt::format("there are {} scores for {} tokens", tables_->scores.size(), tables_->tokens.size()));
}

void Tokenizer::encode_llama(std::string_view given, bool add_space, std::vector<TokenId>& out) const {
  if (given.empty()) return;
  const std::string text = replaced((add_space ? " " : "") + std::string(given), " ", space);
  // The parts form a doubly linked list. A priority queue contains the possible merges of neighbours, ordered by score
  // and then by position. Stale entries are skipped when they are popped.
  struct Part {
    std::uint32_t begin, size;
    std::int64_t previous, next;
    TokenId id;
  };
  struct Candidate {
    float score;
    std::int64_t left, right;
    std::uint32_t size;
    TokenId id;
    bool operator<(const Candidate& o) const { return score != o.score ? score < o.score : left > o.left; }
  };
  const auto find = [&](std::size_t begin, std::size_t size) {
    const auto at = tables_->by_bytes.find(std::string_view(text).substr(begin, size));
    return at == tables_->by_bytes.end() ? no_token : at->second;
  };
  std::vector<Part> parts;
  for (std::size_t at = 0; at < text.size();) {
    // Trust the length in the first byte, so that invalid UTF-8 is split as in llama.cpp.
    const auto first = static_cast<unsigned char>(text[at]);
    const std::size_t named = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const std::size_t size = std::min(named, text.size() - at);
    const auto i = static_cast<std::int64_t>(parts.size());
    parts.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(size), i - 1, i + 1, find(at, size)});
    at += size;
  }
  if (parts.empty()) return;
  parts.back().next = -1;
  const auto part = [&](std::int64_t i) -> Part& { return parts[static_cast<std::size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::int64_t left, std::int64_t right) {
    if (left < 0 || right < 0) return;
    const std::uint32_t size = part(left).size + part(right).size;
    if (tables_->scores.empty()) {  // the merge with the lowest rank comes first
      if (const Merge* const merge = find_merge(part(left).id, part(right).id))
        queue.push({-static_cast<float>(merge->rank), left, right, size, merge->result});
      return;
    }
    const TokenId id = find(part(left).begin, size);
    if (id != no_token) queue.push({tables_->scores[static_cast<std::size_t>(id)], left, right, size, id});
  };
  for (std::int64_t i = 0; i + 1 < static_cast<std::int64_t>(parts.size()); ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Part &left = part(best.left), &right = part(best.right);
    // Skip stale entries: parts only grow to the right, and a part that was merged into its neighbour has size 0.
    if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) continue;
    left.size = best.size, left.id = best.id;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) part(right.next).previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  for (std::int64_t i = 0; i >= 0; i = part(i).next) {
    const Part& p = part(i);
    if (p.id != no_token) {
      out.push_back(p.id);
      continue;
    }
    for (std::size_t b = p.begin; b < p.begin + p.size; ++b) {
      const TokenId id = tables_->byte_ids[static_cast<unsigned char>(text[b])];
      if (id != no_token) {
        out.push_back(id);
      } else if (unknown_) {
        out.push_back(*unknown_);
        break;  // one unknown token for the whole character
      }
    }
  }
}

}  // namespace tessera
