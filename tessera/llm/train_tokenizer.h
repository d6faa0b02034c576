// SPDX-License-Identifier: Apache-2.0
// Learns a vocabulary from text with byte-level byte-pair encoding (Sennrich, Haddow and Birch, "Neural machine
// translation of rare words with subword units", 2016; Radford et al. 2019).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/tokenizer.h"

namespace tessera {

class GgufWriter;

/// Options of train_tokenizer.
struct TrainTokenizerOptions {
  std::int64_t vocabulary = 4096;             ///< number of tokens, including 256 bytes and the end-of-text token
  std::int64_t min_count = 2;                 ///< pairs that occur less often are not merged
  std::string pre_tokenizer = "gpt-2";        ///< a name that PreTokenizer supports
  std::string end_of_text = "<|endoftext|>";  ///< The token that ends a text.
};

/// A learned vocabulary.
struct TrainedTokenizer {
  std::string pre_tokenizer;  ///< The name of the pre-tokenizer.
  /// The tokens in the order of "gpt2" files: first the 256 bytes in GPT-2's order, then the results of the merges
  /// without duplicates, and last the end-of-text token.
  std::vector<std::string> tokens;
  std::vector<std::string> merges;  ///< "left right", in the order in which they were learned
  TokenId end_of_text = 0;          ///< the token that ends a text; also used as the begin token

  /// Adds the "tokenizer.ggml.*" entries to a model file. They specify that texts begin with the end-of-text token.
  void describe(GgufWriter& file) const;
  /// Returns a tokenizer with this vocabulary.
  Tokenizer tokenizer() const;
};

/// Learns a vocabulary from texts, which may contain any bytes. Each step merges the most frequent pair of adjacent
/// tokens. Ties are broken in favour of the lower left id, then of the lower right id. Pairs that cross the boundary of
/// a text, or of a piece of the pre-tokenizer, are not merged. The result is the same on every system and has the same
/// merges as Hugging Face's `tokenizers`. If too few pairs are frequent enough, the vocabulary is smaller than
/// requested. Uses about 32 bytes of memory for each byte of the distinct pieces.
///
/// Throws ArgumentError if the vocabulary is not between 257 and 2^20, if min_count is less than 1, or if the
/// end-of-text token is empty. Throws FormatError if the pre-tokenizer is unknown.
TrainedTokenizer train_tokenizer(std::span<const std::string_view> texts, const TrainTokenizerOptions& options = {});

}  // namespace tessera
