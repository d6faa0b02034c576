// SPDX-License-Identifier: Apache-2.0
// Learns a vocabulary from text with byte-level byte-pair encoding, as GPT-2 (Sennrich, Haddow and Birch, "Neural
// machine translation of rare words with subword units", 2016; Radford et al. 2019).
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
  std::int64_t vocabulary = 4096;             ///< total number of tokens: 256 bytes, merges, and the end of text
  std::int64_t min_count = 2;                 ///< pairs that occur less often are not merged
  std::string pre_tokenizer = "gpt-2";        ///< pairs are merged within its pieces; a name that PreTokenizer supports
  std::string end_of_text = "<|endoftext|>";  ///< The token that ends a text.
};

/// A learned vocabulary.
struct TrainedTokenizer {
  std::string pre_tokenizer;  ///< The name of the pre-tokenizer.
  /// As in "gpt2" files: the 256 bytes in GPT-2's order, then the token of each merge unless it already exists, and the
  /// end of text last.
  std::vector<std::string> tokens;
  std::vector<std::string> merges;  ///< "left right", in the order in which they were learned
  TokenId end_of_text = 0;          ///< also begins a text

  /// Adds the "tokenizer.ggml.*" entries of a model file; texts begin with the end-of-text token.
  void describe(GgufWriter& file) const;
  /// Returns a tokenizer with this vocabulary, equal to that of a file with these entries.
  Tokenizer tokenizer() const;
};

/// Learns a vocabulary from texts, which may contain any bytes; nothing is merged across texts. Each step merges the
/// pair of adjacent tokens that is most frequent in the pieces of the pre-tokenizer; ties are broken in favour of the
/// lower left id, then the lower right id. The same texts give the same merges on every system, equal to those of
/// Hugging Face's `tokenizers`. If no pair is frequent enough, the vocabulary is smaller than requested. Memory: about
/// 32 bytes for each byte of the distinct pieces. Throws ArgumentError if the vocabulary is below 257 or above 2^20,
/// min_count is below 1, or the end of text is empty; FormatError for an unknown pre-tokenizer.
TrainedTokenizer train_tokenizer(std::span<const std::string_view> texts, const TrainTokenizerOptions& options = {});

}  // namespace tessera
