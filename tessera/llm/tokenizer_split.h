// SPDX-License-Identifier: Apache-2.0
// The first step of byte-level BPE: cutting text into the pieces within which tokens are merged.
// Each model family has its patterns; they are run by PCRE2, whose tables say what a letter, a number or a space is.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Cuts text as the family named by "tokenizer.ggml.pre" does. Safe for use by several threads at once.
class PreTokenizer {
 public:
  /// `name` as GGUF files have it: "default", "gpt-2", "llama-bpe", "qwen2", ... (`supported`).
  /// FormatError: any other name; the message lists these.
  explicit PreTokenizer(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Appends the pieces of `text`, in order and without gaps: joined they are `text`, byte for byte. Bytes that are not
  /// UTF-8 form pieces of their own, one for each run of such bytes; no pattern looks across them.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

  /// Whether a piece that is itself a token is taken whole, without merging (Llama 3's "ignore_merges").
  bool ignores_merges() const { return ignores_merges_; }
  /// Whether a begin token is added where the file does not say.
  bool adds_bos() const { return adds_bos_; }
  static bool known(std::string_view name);  ///< True if there are patterns of this name.
  /// "default, gpt-2, ..." for messages.
  static std::string supported();

 private:
  struct Pattern;
  std::vector<std::unique_ptr<Pattern>> patterns_;
  bool ignores_merges_ = false;
  bool adds_bos_ = false;
};

}  // namespace tessera
