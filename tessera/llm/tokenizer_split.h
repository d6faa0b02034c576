// SPDX-License-Identifier: Apache-2.0
// The first step of byte-level BPE: splits text into pieces within which tokens are merged. The patterns differ between
// model families; PCRE2 matches them with its Unicode tables.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Splits text by the patterns named in "tokenizer.ggml.pre". Thread-safe.
class PreTokenizer {
 public:
  /// `name` is the name in GGUF files: "default", "gpt-2", "llama-bpe", "qwen2", ... Throws FormatError for an unknown
  /// name; the message lists the supported ones.
  explicit PreTokenizer(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Appends the pieces of `text`, in order and without gaps: joined, they are equal to `text`. Each sequence of bytes
  /// that are not UTF-8 is a separate piece; patterns do not match across it.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

  /// Whether a piece that is a token is used without merging (Llama 3's "ignore_merges").
  bool ignores_merges() const { return ignores_merges_; }
  /// Whether a begin token is added if the file does not specify it.
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
