// SPDX-License-Identifier: Apache-2.0
// Follows a text through a grammar, and computes which tokens can continue it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/llm/grammar/states.h"
#include "tessera/llm/grammar/token_mask.h"
#include "tessera/llm/grammar/token_trie.h"

namespace tessera {
class Grammar;
class Tokenizer;
}  // namespace tessera

namespace tessera::grammar {

/// A text in progress. Stores the masks that it computes, also for the texts after reset(). The stored masks and states
/// take at most a few hundred MiB, and usually much less than one. Not thread-safe.
class Matcher {
 public:
  /// Starts an empty text. `trie` must outlive the matcher. `ends` are the tokens that end a text.
  Matcher(std::shared_ptr<const Grammar> grammar, const TokenTrie& trie, std::span<const std::int32_t> ends);
  /// Starts an empty text of this vocabulary. The control tokens of the grammar (Grammar::marks) are those of the same
  /// text. `tokenizer` must outlive the matcher.
  Matcher(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer);

  /// Starts another text.
  void reset();
  /// Appends bytes to the text. Returns false if the grammar does not allow them; the text then has no continuation
  /// until reset() is called.
  bool advance(std::string_view bytes);
  /// Appends a token that does not end the text. Requires the constructor with a tokenizer. Returns as advance().
  bool append(std::int32_t token);
  /// True if the text is complete. It may still have longer continuations.
  bool can_end() const { return states_.accepts(state_); }
  /// True if the text is complete and cannot be continued.
  bool is_complete() const { return can_end() && states_.is_final(state_); }

  /// Returns the tokens after which the text can still be completed, and the end tokens if can_end(). The reference is
  /// valid until the next call of a member function. Throws ArgumentError if there are none, although the text is not
  /// complete: if no token consists of the next byte.
  const TokenMask& mask();

  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }
  const States& states() const { return states_; }

 private:
  /// Which tokens can follow a state whose frame is not known.
  struct LocalMask {
    TokenMask tokens;                  ///< tokens that are allowed for every frame
    std::vector<std::uint32_t> leave;  ///< nodes of the trie after which the rule on top can end
  };

  TokenMask compute_mask();
  const LocalMask& local_mask(StateId local);
  /// Adds the tokens below `node` of the trie that are possible in `state`. With `leave`, collects the nodes after
  /// which the rule on top of an opaque frame can end.
  void walk(std::uint32_t node, StateId state, TokenMask& tokens, std::vector<std::uint32_t>* leave);
  void forget_masks();

  std::shared_ptr<const Grammar> grammar_;
  const TokenTrie& trie_;
  const Tokenizer* tokenizer_ = nullptr;
  std::vector<std::int32_t> ends_;
  std::vector<std::int32_t> marks_;  ///< the token of each mark of the grammar, or no_token
  States states_;
  StateId state_;
  std::unordered_map<StateId, TokenMask> masks_;
  std::unordered_map<StateId, LocalMask> local_masks_;
  std::vector<StateId> path_;  ///< used by walk(): the states along the path in the trie
};

}  // namespace tessera::grammar
