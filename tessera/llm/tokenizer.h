// SPDX-License-Identifier: Apache-2.0
// Converts text to tokens and back. Supports four kinds of vocabulary: byte-level BPE, called "gpt2" in GGUF files
// (GPT-2, Llama 3, Qwen and related models), SentencePiece BPE, called "llama" (Llama 2, Mistral, Gemma, Phi 3),
// WordPiece, called "bert" (BERT, BGE, MiniLM), and Unigram, called "t5" (XLM-R, multilingual E5). The tokens of BPE
// and Unigram are the same as in llama.cpp, those of WordPiece the same as in transformers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/gguf.h"

namespace tessera {

namespace grammar {
class TokenTrie;
}

/// The id of a token in a vocabulary.
using TokenId = std::int32_t;
inline constexpr TokenId no_token = -1;  ///< an id that no token has

/// Types of tokens. The values are the numbers in "tokenizer.ggml.token_type".
enum class TokenType : std::uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

/// Spells bytes in the notation of a "gpt2" vocabulary, which represents every byte by a printable character.
std::string byte_level_text(std::string_view bytes);

/// Options of Tokenizer::encode.
struct EncodeOptions {
  /// Add the begin and end tokens that the file requires ("tokenizer.ggml.add_bos_token", "add_eos_token").
  bool add_special = true;
  /// Convert the text of a control token, such as "<|eot_id|>", to that token. Must be false for untrusted text.
  /// User-defined tokens are always converted.
  bool parse_special = false;
  /// A range of the text, such as a user's message in a chat.
  struct Range {
    std::size_t begin, end;  ///< Its first byte, and the byte after its last one.
  };
  std::span<const Range> plain = {};  ///< Sorted ranges in which control tokens are not converted.
};

/// The tokens with which a model is asked to fill a gap (fill in the middle): `prefix`, the text before the gap,
/// `suffix`, the text after it, `middle`. The model then generates the text of the gap.
struct FillTokens {
  TokenId prefix = no_token;  ///< precedes the text before the gap
  TokenId suffix = no_token;  ///< precedes the text after the gap
  TokenId middle = no_token;  ///< precedes the text of the gap
};

/// A tokenizer. Immutable and thread-safe.
class Tokenizer {
 public:
  /// Reads the "tokenizer.ggml.*" metadata. Does not keep a reference to `file`. If the file does not specify a
  /// pre-tokenizer, logs a warning and uses "default". Merges whose parts or result are not tokens are ignored.
  ///
  /// Throws FormatError if a key is missing or has the wrong type, if the model is not one of these four, if the
  /// pre-tokenizer is unknown, if merges are malformed, if a token occurs twice, if an id is out of range, or if a
  /// "llama" vocabulary of a GGUF file has no scores.
  explicit Tokenizer(const GgufFile& file);

  /// Returns the tokens of `text`, which may contain any bytes (see PreTokenizer::split for invalid UTF-8). As in
  /// llama.cpp, a "gpt2" vocabulary drops a byte that has no token. A "llama" vocabulary replaces it by the unknown
  /// token, or drops it if there is none.
  ///
  /// Takes O(n log n) time for each piece of length n. For a "llama" vocabulary, the text between two special tokens is
  /// one piece.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  /// Returns the bytes of a token, which may be an incomplete UTF-8 character (see Utf8Stream). Returns an empty view
  /// for control and unknown tokens, or their text if `special` is true. The view is valid as long as the tokenizer.
  /// Throws ArgumentError if the token does not exist.
  std::string_view decode(TokenId id, bool special = false) const;
  /// Returns the concatenated bytes of all tokens. Removes the leading space that `encode` adds with a "llama"
  /// vocabulary.
  std::string decode(std::span<const TokenId> ids, bool special = false) const;

  /// The number of tokens in the vocabulary.
  std::size_t size() const;
  /// Returns the token as it is spelled in the vocabulary. Throws ArgumentError if it does not exist.
  std::string_view text(TokenId id) const;
  /// The type of a token.
  TokenType type(TokenId id) const;
  /// Returns the token with this spelling, or std::nullopt.
  std::optional<TokenId> find(std::string_view text) const;

  /// The begin token, if the vocabulary has one.
  std::optional<TokenId> bos() const { return bos_; }
  /// The end token, if the vocabulary has one.
  std::optional<TokenId> eos() const { return eos_; }
  /// True if encode() adds the begin token.
  bool adds_bos() const { return adds_bos_; }
  /// True if encode() adds the end token.
  bool adds_eos() const { return adds_eos_; }
  /// True if encode() adds a space before the text.
  bool adds_space() const { return space_ != SpaceBefore::never; }
  /// The tokens for filling a gap, if the vocabulary has all three: those that the file names, or those of common
  /// models, such as "<|fim_prefix|>".
  const std::optional<FillTokens>& fill_tokens() const { return fill_; }
  /// Returns the prompt for filling the gap between two texts, with the begin token if the file requires it. Control
  /// tokens in the texts are not converted. Throws ArgumentError if there are no fill_tokens().
  std::vector<TokenId> encode_gap(std::string_view before, std::string_view after) const;
  /// True if generation ends with this token: the file's eos, eot and eom tokens, and tokens that end a turn or the
  /// filling of a gap in common models, such as "<|eot_id|>", "<|im_end|>" and "<|fim_pad|>".
  bool is_end(TokenId id) const;
  /// All tokens for which is_end() is true, in ascending order.
  std::span<const TokenId> ends() const;
  /// The bytes of all tokens as a trie, which grammars use. Built by the first call.
  const grammar::TokenTrie& trie() const;

 private:
  // tokenizer_tables.h
  struct Token;
  struct Merge;
  struct Tables;

  enum class Model { gpt2, llama, bert, t5 };
  // When a space is added before text (hub/metadata.h)
  enum class SpaceBefore { never, fragment, word, first };

  const Token& token(TokenId id) const;
  static Model model_of(const GgufFile& file);
  static std::string pre_of(const GgufFile& file, Model model);
  void read_vocabulary(const GgufFile& file);
  void read_special(const GgufFile& file);
  void read_strips(const GgufFile& file);
  std::vector<TokenId> ids_of(const GgufFile& file, std::string_view key) const;
  // tokenizer_bpe.cpp
  void read_bytes_of_gpt2();
  void read_merges(const GgufFile& file);
  const Merge* find_merge(TokenId left, TokenId right) const;
  void encode_gpt2(std::string_view text, std::vector<TokenId>& out) const;
  void encode_piece(std::string_view piece, std::vector<TokenId>& out) const;
  // tokenizer_spm.cpp
  void read_bytes_of_llama();
  void read_scores(const GgufFile& file);
  void encode_llama(std::string_view text, bool add_space, std::vector<TokenId>& out) const;
  // tokenizer_wordpiece.cpp
  void read_wordpiece(const GgufFile& file);
  void read_wordpiece_ends(const GgufFile& file);
  void encode_bert(std::string_view text, std::vector<TokenId>& out) const;
  // tokenizer_unigram.cpp
  void read_unigrams(const GgufFile& file);
  std::string normalised_for_t5(std::string_view text) const;
  void encode_t5(std::string_view text, std::vector<TokenId>& out) const;

  Model model_;
  std::shared_ptr<Tables> tables_;          // never changes
  SpaceBefore space_ = SpaceBefore::never;  // not used by "gpt2"
  std::vector<TokenId> special_;            // tokens to search for in the text, longest first
  std::vector<TokenId> ends_;
  std::optional<TokenId> bos_, eos_, unknown_;
  std::optional<FillTokens> fill_;
  bool adds_bos_ = false, adds_eos_ = false;
};

}  // namespace tessera
