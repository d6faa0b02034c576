// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/matcher.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/llm/grammar/grammar.h"
#include "tessera/llm/tokenizer.h"

namespace tessera::grammar {
namespace {

constexpr std::size_t most_mask_bytes = std::size_t{64} << 20;  // stored masks of each kind

}  // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, const TokenTrie& trie, std::span<const std::int32_t> ends)
    : grammar_(std::move(grammar)),
      trie_(trie),
      ends_(ends.begin(), ends.end()),
      states_(grammar_->automaton()),
      state_(states_.start()),
      path_(trie.max_depth() + 1) {}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer)
    : Matcher(std::move(grammar), tokenizer.trie(), tokenizer.ends()) {
  tokenizer_ = &tokenizer;
  for (const std::string& text : grammar_->marks()) {
    const std::optional<TokenId> id = tokenizer.find(text);
    const bool is_control = id && tokenizer.type(*id) == TokenType::control && !tokenizer.is_end(*id);
    marks_.push_back(is_control ? *id : no_token);
  }
}

void Matcher::reset() { state_ = states_.start(); }

bool Matcher::advance(std::string_view bytes) {
  for (const char c : bytes) state_ = states_.step(state_, static_cast<std::uint8_t>(c));
  return state_ != dead_state;
}

bool Matcher::append(std::int32_t token) {
  const auto mark = std::ranges::find(marks_, token);
  if (mark == marks_.end()) return advance(tokenizer_->decode(token));
  return advance(mark_bytes(static_cast<std::size_t>(mark - marks_.begin())));
}

const TokenMask& Matcher::mask() {
  if (const auto at = masks_.find(state_); at != masks_.end()) return at->second;
  if (states_.is_large()) {
    forget_masks();
    state_ = states_.compact(state_);
  }
  if (masks_.size() * (trie_.tokens() / 8) > most_mask_bytes) masks_.clear();
  TokenMask mask = compute_mask();
  if (can_end())
    for (const std::int32_t end : ends_) mask.insert(end);
  if (mask.empty() && !is_complete())
    fail<ArgumentError>({.operation = "grammar",
                         .wrong = "no token of the vocabulary continues the text as the grammar requires",
                         .remedy = "The vocabulary has no tokens for some single bytes. Use a grammar without the "
                                   "characters that contain them"});
  return masks_[state_] = std::move(mask);
}

TokenMask Matcher::compute_mask() {
  TokenMask tokens(trie_.tokens());
  for (const auto& [frame, local] : states_.groups(state_)) {
    const LocalMask& part = local_mask(local);
    tokens.insert_all(part.tokens);
    if (frame == root_frame || part.leave.empty()) continue;
    const StateId after = states_.after_return(frame);
    for (const std::uint32_t node : part.leave) walk(node, after, tokens, nullptr);
  }
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    StateId state = state_;
    for (const char c : mark_bytes(i)) state = states_.step(state, static_cast<std::uint8_t>(c));
    if (marks_[i] != no_token && state != dead_state) tokens.insert(marks_[i]);
  }
  return tokens;
}

const Matcher::LocalMask& Matcher::local_mask(StateId local) {
  if (const auto at = local_masks_.find(local); at != local_masks_.end()) return at->second;
  if (local_masks_.size() * (trie_.tokens() / 8) > most_mask_bytes) local_masks_.clear();
  LocalMask mask{TokenMask(trie_.tokens()), {}};
  walk(0, local, mask.tokens, &mask.leave);
  return local_masks_[local] = std::move(mask);
}

void Matcher::walk(std::uint32_t node, StateId state, TokenMask& tokens, std::vector<std::uint32_t>* leave) {
  const std::uint32_t end = trie_.end(node);
  path_[trie_.depth(node)] = state;
  for (std::uint32_t i = node + 1; i < end;) {
    const std::uint32_t depth = trie_.depth(i);
    const std::uint8_t byte = trie_.byte(i);
    const StateId to = byte == mark_byte ? dead_state : states_.step(path_[depth - 1], byte);
    if (to == dead_state) {
      i = trie_.end(i);
      continue;
    }
    path_[depth] = to;
    for (const std::int32_t id : trie_.ids(i)) tokens.insert(id);
    if (leave != nullptr && states_.leaves(to)) leave->push_back(i);
    ++i;
  }
}

void Matcher::forget_masks() {
  masks_.clear();
  local_masks_.clear();
}

}  // namespace tessera::grammar
