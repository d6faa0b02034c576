// SPDX-License-Identifier: Apache-2.0
// Prepares the text of `tessera train lm`: splits it, converts it to tokens, and selects the windows of each step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/llm/tokenizer.h"

namespace tessera::app {

/// Separates documents, both in the text and as a token.
inline constexpr std::string_view end_of_text = "<|endoftext|>";

/// A text, split into two parts. The views point into the text.
struct SplitText {
  std::vector<std::string_view> training, held_out;
};
/// Splits a text into a training part and a held-out part. The text is first split into documents at end_of_text. A
/// document that is larger than a hundredth of the text is cut into sections of about that size, at line ends if
/// possible. Sections at regular distances are held out. Their total size is a twentieth of the text, but at most a
/// megabyte.
SplitText split_text(std::string_view text);

/// Concatenated documents. There is a begin token before each document and after the last one.
struct TokenStream {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> starts;  ///< positions of paragraphs: the first token of a document or after an empty line
  std::size_t bytes = 0;            ///< total size of the documents
};
TokenStream token_stream(const std::vector<std::string_view>& documents, const Tokenizer& tokenizer);

/// Returns `count` random windows of `length` + 1 tokens, concatenated. They only depend on the seed and the step.
/// Every fourth window consists of a begin token and the start of a paragraph, so that the model learns to begin a
/// text. The stream must be longer than `length`.
std::vector<std::int32_t> windows(const TokenStream& stream, std::int32_t begin, std::uint64_t seed, std::uint64_t step,
                                  std::int64_t count, std::int64_t length);

/// Overlapping windows for evaluation. Each window has `length` tokens and starts half a window after the previous one.
/// Every token except the first is counted in exactly one window. Tokens after the first window have a context of at
/// least half a window.
struct MeasuredWindows {
  std::vector<std::int32_t> inputs;   ///< (count, length), padded with token 0
  std::vector<std::int32_t> targets;  ///< (count, length); `ignore_index` for tokens that are not counted
  std::int64_t count = 0, counted = 0;
};
inline constexpr std::int32_t ignore_index = -100;
/// `most` is the maximum number of windows, or 0 for all.
MeasuredWindows measured_windows(const std::vector<std::int32_t>& tokens, std::int64_t length, std::int64_t most);

}  // namespace tessera::app
