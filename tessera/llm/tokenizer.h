// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back, for the two kinds of vocabulary that most models have: the byte-level BPE that GGUF files
// call "gpt2" (GPT-2, Llama 3, Qwen and their relatives), and SentencePiece's BPE, which they call "llama" (Llama 2,
// Mistral, Gemma, Phi 3). Built from a file's metadata alone; gives the same tokens as llama.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/llm/gguf.h"
#include "tessera/llm/tokenizer_split.h"

namespace tessera {

/// The number of a token in a vocabulary.
using TokenId = std::int32_t;
inline constexpr TokenId no_token = -1;  ///< the id of no token

/// Kinds of tokens, numbered as "tokenizer.ggml.token_type" numbers them.
enum class TokenType : std::uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

/// Any bytes in the spelling of a "gpt2" vocabulary, in which every byte is a character that prints.
std::string byte_level_text(std::string_view bytes);

/// Options of Tokenizer::encode.
struct EncodeOptions {
  /// Adds the begin and end tokens that the file asks for ("tokenizer.ggml.add_bos_token", "add_eos_token").
  bool add_special = true;
  /// Takes the text of control tokens, such as "<|eot_id|>", for the tokens. Leave it off for text from outside.
  /// Tokens that the model's author added as "user defined" are taken always.
  bool parse_special = false;
  /// Parts of the text, in order, where control tokens are not taken all the same: a user's words in a chat.
  struct Range {
    std::size_t begin, end;  ///< bytes
  };
  std::span<const Range> plain = {};  ///< Ranges in which no special tokens are recognised.
};

/// A tokenizer. Immutable: all functions may be called by several threads at once.
class Tokenizer {
 public:
  /// Reads "tokenizer.ggml.*". FormatError: a missing or mistyped key, another model than "gpt2" or "llama", another
  /// pre-tokenizer than PreTokenizer knows (a missing one means "default", with a warning), lines of merges that are
  /// none, tokens that occur twice, ids out of range, a "llama" vocabulary without scores. Merges of what is no token
  /// are never made. Nothing of `file` is kept.
  explicit Tokenizer(const GgufFile& file);

  /// The tokens of `text`, which may be any bytes (see PreTokenizer::split for those that are not UTF-8). A byte for
  /// which a "gpt2" vocabulary has no token is left out, as llama.cpp leaves it out; in a "llama" vocabulary it becomes
  /// the unknown token, or is left out where there is none. Takes O(n log n) in the length of the longest piece, which
  /// for "llama" is the text between special tokens.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The bytes that a token stands for, perhaps part of a character (see Utf8Stream); nothing for control and unknown
  /// tokens unless `special`, then their text. Valid as long as the tokenizer. ArgumentError: no such token.
  std::string_view decode(TokenId id, bool special = false) const;
  /// The bytes of all tokens, joined; without the space that `encode` put before the text of a "llama" vocabulary.
  std::string decode(std::span<const TokenId> ids, bool special = false) const;

  /// The number of tokens in the vocabulary.
  std::size_t size() const { return tokens_.size(); }
  /// The token as the vocabulary writes it. ArgumentError: no such token.
  std::string_view text(TokenId id) const { return token(id).text; }
  /// The kind of a token.
  TokenType type(TokenId id) const { return token(id).type; }
  /// The token that the vocabulary writes so.
  std::optional<TokenId> find(std::string_view text) const;

  /// The begin token, if the vocabulary has one.
  std::optional<TokenId> bos() const { return bos_; }
  /// The end token, if the vocabulary has one.
  std::optional<TokenId> eos() const { return eos_; }
  /// True if encode() puts the begin token first.
  bool adds_bos() const { return adds_bos_; }
  /// True if encode() puts the end token last.
  bool adds_eos() const { return adds_eos_; }
  /// Whether `encode` puts a space before a text, which is none of what the text says.
  bool adds_space() const { return adds_space_; }
  /// Whether generation ends with this token: the file's eos, eot and eom tokens, and tokens of whatever type with the
  /// texts that the common families use to end a turn ("<|eot_id|>", "<|im_end|>", ...).
  bool is_end(TokenId id) const;
  /// All tokens for which `is_end`, ascending.
  std::span<const TokenId> ends() const { return ends_; }

 private:
  struct Token {
    std::string text;   // as in the vocabulary
    std::string bytes;  // what it stands for
    TokenType type = TokenType::normal;
  };
  struct Merge {
    std::uint32_t rank;
    TokenId result;
  };

  enum class Model { gpt2, llama };

  const Token& token(TokenId id) const;
  static Model model_of(const GgufFile& file);
  static std::string pre_of(const GgufFile& file, Model model);
  void read_vocabulary(const GgufFile& file);
  void read_special(const GgufFile& file);
  // tokenizer_bpe.cpp
  void read_bytes_of_gpt2();
  void read_merges(const GgufFile& file);
  const Merge* find_merge(TokenId left, TokenId right) const;
  void encode_gpt2(std::string_view text, std::vector<TokenId>& out) const;
  void encode_piece(std::string_view piece, std::vector<TokenId>& out) const;
  // tokenizer_spm.cpp
  void read_bytes_of_llama();
  void read_scores(const GgufFile& file);
  void encode_llama(std::string_view text, bool after_special, std::vector<TokenId>& out) const;

  Model model_;
  PreTokenizer pre_;  // of "gpt2"
  std::vector<Token> tokens_;
  std::unordered_map<std::string_view, TokenId> by_text_;   // views into tokens_, which never changes
  std::unordered_map<std::string_view, TokenId> by_bytes_;  // of tokens that plain text can become
  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Merge> merges_;  // by left id and right id
  std::vector<float> scores_;                        // of "llama"
  bool adds_space_ = false;                          // of "llama": one before the text and behind special tokens
  bool strips_after_special_ = false;                // of Phi 3: white space behind special tokens is theirs
  std::vector<TokenId> special_;                     // to look for in text, longest first
  std::vector<TokenId> ends_;
  std::optional<TokenId> bos_, eos_, unknown_;
  bool adds_bos_ = false, adds_eos_ = false;
};

}  // namespace tessera
