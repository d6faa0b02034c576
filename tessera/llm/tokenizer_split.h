// SPDX-License-Identifier: Apache-2.0
// The first step of byte-level BPE: splits text into pieces. Tokens are never merged across pieces. The patterns differ
// between model families and are matched by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Splits text with the patterns of a model family ("tokenizer.ggml.pre"). Thread-safe.
class PreTokenizer {
 public:
  /// `name` is a name from GGUF files, such as "default", "gpt-2", "llama-bpe" or "qwen2". Throws FormatError if the
  /// name is unknown; the message lists the supported names.
  explicit PreTokenizer(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Appends the pieces of `text`. Their concatenation is equal to `text`. A sequence of invalid UTF-8 bytes becomes a
  /// separate piece, and patterns do not match across it.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

  /// True if a piece that is equal to a token becomes that token without merging (Llama 3's "ignore_merges").
  bool ignores_merges() const { return ignores_merges_; }
  /// True if a begin token is added unless the file specifies otherwise.
  bool adds_bos() const { return adds_bos_; }
  static bool known(std::string_view name);  ///< True if there are patterns with this name.
  /// Returns "default, gpt-2, ..." for messages.
  static std::string supported();

 private:
  struct Pattern;
  std::vector<std::unique_ptr<Pattern>> patterns_;
  bool ignores_merges_ = false;
  bool adds_bos_ = false;
};

}  // namespace tessera
