// SPDX-License-Identifier: Apache-2.0
// The text of `tessera train lm`: the held-out split, its tokens, and the windows of a step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/llm/tokenizer.h"

namespace tessera::app {

/// Separates documents in a file, and is the token between them.
inline constexpr std::string_view end_of_text = "<|endoftext|>";

/// A text split in two: views into it.
struct SplitText {
  std::vector<std::string_view> training, held_out;
};
/// Splits a text. Documents are separated by end_of_text and trimmed. Documents larger than a hundredth of the text are
/// cut at line ends into sections of about that size (at spaces, or between characters, if lines are longer). Sections
/// are held out at regular distances: a twentieth of the text, at most a megabyte. Deterministic, without a seed.
SplitText split_text(std::string_view text);

/// Concatenated documents, with a begin token before each and one after the last.
struct TokenStream {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> starts;  ///< starts of paragraphs: the token after a begin token or an empty line
  std::size_t bytes = 0;            ///< of the documents
};
TokenStream token_stream(const std::vector<std::string_view>& documents, const Tokenizer& tokenizer);

/// `count` windows of `length` + 1 tokens, concatenated: a function of seed and step. One in four starts at a
/// paragraph, after a begin token, so that a model learns to begin a text. The stream must be longer than `length`.
std::vector<std::int32_t> windows(const TokenStream& stream, std::int32_t begin, std::uint64_t seed, std::uint64_t step,
                                  std::int64_t count, std::int64_t length);

/// Windows for evaluation: each has `length` tokens and starts half a window after the previous one; only tokens that
/// were not counted before are counted. So all tokens except the first are predicted once, and all except the first
/// `length` with a context of at least half a window.
struct MeasuredWindows {
  std::vector<std::int32_t> inputs;   ///< (count, length), padded with token 0
  std::vector<std::int32_t> targets;  ///< likewise; `uncounted` where a token is not counted
  std::int64_t count = 0, counted = 0;
};
inline constexpr std::int32_t ignore_index = -100;
/// `most`: maximum number of windows; 0: all.
MeasuredWindows measured_windows(const std::vector<std::int32_t>& tokens, std::int64_t length, std::int64_t most);

}  // namespace tessera::app
