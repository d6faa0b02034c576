// SPDX-License-Identifier: Apache-2.0
// The tables of a tokenizer. Internal.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/llm/tokenizer.h"
#include "tessera/llm/tokenizer_charsmap.h"
#include "tessera/llm/tokenizer_split.h"

namespace tessera {

struct Tokenizer::Token {
  std::string text;   // as in the vocabulary
  std::string bytes;  // decoded
  TokenType type = TokenType::normal;
  // In encoded text, white space before or after the token is removed.
  bool strips_left = false, strips_right = false;
};
struct Tokenizer::Merge {
  std::uint32_t rank;
  TokenId result;
};

struct Tokenizer::Tables {
  explicit Tables(std::string_view pre_tokenizer) : pre(pre_tokenizer) {}
  PreTokenizer pre;  // used by "gpt2"
  bool nfc = false;  // used by "gpt2": text is normalised first
  std::vector<Token> tokens;
  std::unordered_map<std::string_view, TokenId> by_text;   // views into `tokens`
  std::unordered_map<std::string_view, TokenId> by_bytes;  // tokens that plain text may be converted to
  std::array<TokenId, 256> byte_ids{};
  std::unordered_map<std::uint64_t, Merge> merges;  // key: left id in the upper 32 bits, right id in the lower
  std::vector<float> scores;                        // used by "llama" and "t5"
  // used by "bert"
  bool lowercase = false, strips_accents = false;
  // used by "t5"
  CharsMap charsmap;
  bool merges_spaces = false;
  double unknown_score = 0;
  std::shared_ptr<const grammar::TokenTrie> unigrams;
  std::once_flag trie_built;
  std::shared_ptr<const grammar::TokenTrie> trie;  // null until trie() is called
};

}  // namespace tessera
