// SPDX-License-Identifier: Apache-2.0
// Metadata of a model folder in the form of GGUF metadata. Internal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/llm/gguf_values.h"

namespace tessera::hub {

// Keys that GGUF files do not have. The tokenizer and EmbeddingModel read them.
/// Ids of all tokens that end the generated text: array of i32.
inline constexpr std::string_view ends_key = "tessera.tokenizer.end_tokens";
/// Ids of tokens that remove the white space before or after them: arrays of i32.
inline constexpr std::string_view strips_left_key = "tessera.tokenizer.strips_left";
inline constexpr std::string_view strips_right_key = "tessera.tokenizer.strips_right";
/// When a space is added before text: "fragment" (always), "word" (unless the text begins with a space), or "first"
/// (the same, but only at the beginning of the text).
inline constexpr std::string_view space_key = "tessera.tokenizer.space_before";

/// True if text is converted to Unicode's normalization form C first.
inline constexpr std::string_view nfc_key = "tessera.tokenizer.nfc";
/// True if a "llama" vocabulary has ranked merges instead of scores.
inline constexpr std::string_view ranks_key = "tessera.tokenizer.ranked_merges";

/// Embedding models: whether embeddings are scaled to the length 1 by default, and the maximum number of tokens of a
/// text, if it is less than the context length.
inline constexpr std::string_view normalize_key = "tessera.embedding.normalize";
inline constexpr std::string_view max_tokens_key = "tessera.embedding.max_tokens";

/// Collects entries with unique keys.
class Metadata {
 public:
  void set(std::string key, GgufValue value) {
    const auto known = std::ranges::find(entries_, key, &GgufEntry::key);
    if (known != entries_.end())
      known->value = std::move(value);
    else
      entries_.push_back({std::move(key), std::move(value)});
  }
  void set_count(std::string key, std::int64_t value) { set(std::move(key), static_cast<std::uint32_t>(value)); }
  void set_number(std::string key, double value) { set(std::move(key), static_cast<float>(value)); }
  std::vector<GgufEntry> take() { return std::move(entries_); }

 private:
  std::vector<GgufEntry> entries_;
};

}  // namespace tessera::hub
