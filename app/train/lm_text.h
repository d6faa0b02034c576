// SPDX-License-Identifier: Apache-2.0
// The text that `tessera train lm` learns from: what of it is held out, its tokens, and the windows that a step takes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/llm/tokenizer.h"

namespace tessera::app {

/// What separates documents in a file, and is the token between them.
inline constexpr std::string_view end_of_text = "<|endoftext|>";

/// A text, cut in two: views into it.
struct SplitText {
  std::vector<std::string_view> training, held_out;
};
/// Documents are what stands between ends of text, without white space around. One larger than a hundredth of the text
/// is cut at ends of lines into sections of about that size (at spaces, or anywhere between characters, where lines are
/// longer). Every so many bytes a section is held out: a twentieth of the text, a megabyte at most. No seed: the same
/// text is always cut alike.
SplitText split_text(std::string_view text);

/// Documents after one another, each behind a begin token, and one behind the last.
struct TokenStream {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> starts;  ///< where paragraphs start: the token behind a begin token or an empty line
  std::size_t bytes = 0;            ///< of the documents
};
TokenStream token_stream(const std::vector<std::string_view>& documents, const Tokenizer& tokenizer);

/// `count` windows of `length` + 1 tokens, one behind the other: a function of seed and step. Of every four one begins
/// where a paragraph does, behind a begin token, so that a model learns to begin a text. The stream is longer than
/// `length`.
std::vector<std::int32_t> windows(const TokenStream& stream, std::int32_t begin, std::uint64_t seed, std::uint64_t step,
                                  std::int64_t count, std::int64_t length);

/// How a stream is read to measure a model: windows of `length` tokens, each beginning half a window behind the one
/// before, of which only what was not yet counted counts. So all tokens but the first are predicted once, and all but
/// the first `length` from half a window at least.
struct MeasuredWindows {
  std::vector<std::int32_t> inputs;   ///< (count, length), filled up with token 0
  std::vector<std::int32_t> targets;  ///< the same; uncounted where nothing counts
  std::int64_t count = 0, counted = 0;
};
inline constexpr std::int32_t ignore_index = -100;
/// `most`: as many windows at most; 0: all.
MeasuredWindows measured_windows(const std::vector<std::int32_t>& tokens, std::int64_t length, std::int64_t most);

}  // namespace tessera::app
