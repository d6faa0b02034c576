// SPDX-License-Identifier: Apache-2.0
// Learning a vocabulary from text: byte-level byte-pair encoding as GPT-2 has it (Sennrich, Haddow and Birch, "Neural
// machine translation of rare words with subword units", 2016; Radford et al. 2019).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {

/// Options of train_tokenizer.
struct TrainTokenizerOptions {
  std::int64_t vocabulary = 4096;             ///< tokens in all: 256 bytes, merges, and the end of text
  std::int64_t min_count = 2;                 ///< a pair that is rarer is not merged
  std::string pre_tokenizer = "gpt-2";        ///< within whose pieces pairs are merged: a name that PreTokenizer knows
  std::string end_of_text = "<|endoftext|>";  ///< The token that ends a text.
};

/// A vocabulary that was learned.
struct TrainedTokenizer {
  std::string pre_tokenizer;  ///< The pre-tokenizer it was trained with.
  /// As files of kind "gpt2" write them: the 256 bytes in the order of their characters (GPT-2's own), then each
  /// merge's token in the order of the merges, unless it is there already, and the end of text as the last.
  std::vector<std::string> tokens;
  std::vector<std::string> merges;  ///< "left right", the first learned first
  TokenId end_of_text = 0;          ///< which begins a text, too

  /// Writes the "tokenizer.ggml.*" entries of a model file, by which texts begin with the end of text.
  void describe(GgufWriter& file) const;
  /// What encodes by it. Equal to that of a file with these entries.
  Tokenizer tokenizer() const;
};

/// Learns from texts, which may be any bytes; nothing is merged across two of them. Each step merges the pair of tokens
/// that stands side by side most often in the pieces of the pre-tokenizer; of pairs that are equally frequent the one
/// whose left token has the lower number, then the right one. The same texts give the same merges on every system,
/// those of Hugging Face's `tokenizers`. Where no pair is frequent enough, the vocabulary is smaller than what was
/// asked. Memory: 16 bytes for each byte of the different pieces, and as much again. ArgumentError: a vocabulary below
/// 257 or above 2^20, a min_count below 1, an empty end of text; FormatError: an unknown pre-tokenizer.
TrainedTokenizer train_tokenizer(std::span<const std::string_view> texts, const TrainTokenizerOptions& options = {});

}  // namespace tessera
