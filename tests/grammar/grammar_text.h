// SPDX-License-Identifier: Apache-2.0
// Functions that feed texts to grammars, and vocabularies, for tests.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/grammar/grammar.h"
#include "tessera/llm/grammar/states.h"
#include "tessera/llm/grammar/token_trie.h"

namespace tessera::test {

/// How a grammar reads a text.
enum class Match { dead, prefix, complete };
inline Match match(const Grammar& g, std::string_view text) {
  grammar::States states(g.automaton());
  grammar::StateId at = states.start();
  for (const char c : text) at = states.step(at, static_cast<std::uint8_t>(c));
  return at == grammar::dead_state ? Match::dead : states.accepts(at) ? Match::complete : Match::prefix;
}
inline bool accepts(const Grammar& g, std::string_view text) { return g.matches(text); }

/// Tokens for tests: all single bytes, then other texts.
struct Vocabulary {
  explicit Vocabulary(std::vector<std::string> more) : texts(256) {
    for (std::size_t b = 0; b < 256; ++b) texts[b] = std::string(1, static_cast<char>(b));
    for (std::string& text : more) texts.push_back(std::move(text));
  }
  grammar::TokenTrie trie() const {
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return grammar::TokenTrie(std::span<const std::string_view>(views));
  }
  std::vector<std::string> texts;
};

/// Replaces, removes, inserts or repeats bytes, or copies a part from another place.
inline std::string mutated(std::string text, std::mt19937_64& random, std::string_view alphabet) {
  for (std::size_t n = 1 + random() % 3; n > 0; --n) {
    const std::size_t at = random() % (text.size() + 1);
    const char c = random() % 8 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    switch (random() % 5) {
      case 0: text.insert(at, 1, c); break;
      case 1: text.erase(at, 1 + random() % 3); break;
      case 2:
        if (at < text.size()) text[at] = c;
        break;
      case 3: text.insert(at, text.substr(random() % (text.size() + 1), random() % 20)); break;
      default: text.insert(at, 1 + random() % 40, c);
    }
  }
  return text;
}

}  // namespace tessera::test
