// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/token_trie.h"

#include <algorithm>

#include "tessera/llm/tokenizer.h"

namespace tessera::grammar {
namespace {

constexpr std::size_t longest_token = 4096;  // longer tokens are left out

std::vector<std::string_view> text_bytes(const Tokenizer& tokenizer) {
  std::vector<std::string_view> out(tokenizer.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = tokenizer.type(id);
    const bool is_text = type == TokenType::normal || type == TokenType::byte || type == TokenType::user_defined;
    if (is_text && !tokenizer.is_end(id)) out[i] = tokenizer.decode(id);
  }
  return out;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer)
    : TokenTrie(std::span<const std::string_view>(text_bytes(tokenizer))) {}

TokenTrie::TokenTrie(std::span<const std::string_view> bytes) : tokens_(bytes.size()) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (!bytes[i].empty() && bytes[i].size() <= longest_token) ids_.push_back(static_cast<std::int32_t>(i));
  std::ranges::stable_sort(ids_, {}, [&](std::int32_t id) { return bytes[static_cast<std::size_t>(id)]; });
  nodes_.push_back({0, 0, 0, 0, 0});
  std::vector<std::uint32_t> path = {0};  // the nodes of all prefixes of the previous token
  std::string_view previous;
  for (std::uint32_t i = 0; i < ids_.size(); ++i) {
    const std::string_view text = bytes[static_cast<std::size_t>(ids_[i])];
    const auto same = static_cast<std::size_t>(std::ranges::mismatch(text, previous).in1 - text.begin());
    for (; path.size() > same + 1; path.pop_back()) nodes_[path.back()].end = size();
    for (std::size_t n = same; n < text.size(); ++n) {
      path.push_back(size());
      nodes_.push_back({0, i, i, static_cast<std::uint16_t>(n + 1), static_cast<std::uint8_t>(text[n])});
    }
    nodes_[path.back()].last_id = i + 1;
    max_depth_ = std::max(max_depth_, static_cast<std::uint32_t>(text.size()));
    previous = text;
  }
  for (const std::uint32_t node : path) nodes_[node].end = size();
}

}  // namespace tessera::grammar
