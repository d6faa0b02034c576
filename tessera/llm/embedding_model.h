// SPDX-License-Identifier: Apache-2.0
// Computes embeddings: vectors that are close to each other if texts have similar meanings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/enum_name.h"
#include "tessera/llm/encoder.h"
#include "tessera/llm/tokenizer.h"

namespace tessera {

struct ModelMemory;

/// How the states of a text's tokens become its embedding. The values are the numbers in `{architecture}.pooling_type`.
enum class Pooling : std::uint8_t {
  none,  ///< the states of all tokens
  mean,  ///< their mean
  cls,   ///< the state of the first token, which BERT calls [CLS]
  last   ///< the state of the last token
};
std::string_view pooling_name(Pooling pooling);  ///< Returns the name, such as "mean".
/// Returns the name, such as "mean".
inline std::string to_string(Pooling pooling) { return std::string(pooling_name(pooling)); }
/// Returns the pooling of a model: that of the file, or the mean if the file contains none. Throws FormatError if the
/// file requires another kind, such as a classifier that ranks pairs of texts.
Pooling read_pooling(const GgufFile& file);
/// Returns the maximum number of tokens of a text: the context length, or less if a folder of sentence-transformers
/// says so. Throws the errors of read_llama_config or read_encoder_config, and FormatError if the limit is out of
/// range.
std::int64_t read_max_tokens(const GgufFile& file);

/// True if the model computes embeddings and does not generate text: an encoder, or a language model whose file
/// contains a pooling type.
bool is_embedding_model(const GgufFile& file);

/// Options of EmbeddingModel::embed.
struct EmbeddingOptions {
  std::optional<Pooling> pooling = {};  ///< default: EmbeddingModel::pooling()
  std::optional<bool> normalize = {};   ///< scale each vector to the Euclidean length 1; default: normalizes()
  bool truncate = false;                ///< shorten texts that are longer than the context length
  std::string prefix = {};              ///< precedes each text, such as "query: " for E5
  std::int64_t batch = 512;             ///< maximum number of tokens in a step, unless a text is longer
  /// Called after each step with the number of texts that are done, and of all texts.
  Callback<void(std::size_t done, std::size_t total)> on_progress = {};
  /// Called before each step, and before each layer of an encoder; return true to stop.
  Callback<bool()> cancelled = {};
};

/// The embedding of a text.
struct EmbeddingResult {
  /// f32 (width,). With Pooling::none, f32 (tokens, width) in row-major order.
  std::vector<float> values;
  std::int64_t tokens = 0;  ///< number of tokens that were read, including special tokens
  bool truncated = false;   ///< the text was longer than the context length
};
/// Returns a summary with the numbers of tokens and of elements.
std::string to_string(const EmbeddingResult& result);

/// A model on a device, ready to compute embeddings. Thread-safe.
///
/// Encoders (see Encoder) attend in both directions. Language models attend to earlier tokens; their states are those
/// after the last norm. Texts do not influence each other.
class EmbeddingModel {
 public:
  /// Loads a model on one device, or a language model on several (see LoadOptions::devices). Without devices, uses
  /// current_device(). Throws the errors of GgufFile::open, Tokenizer, Encoder::load, Llama::load and read_pooling. If
  /// the model does not fit, throws OutOfMemory before weights are read. Throws ArgumentError if an encoder is loaded
  /// on several devices.
  static EmbeddingModel load(const std::string& path, std::span<const Device> devices = {},
                             const LoadProgress& progress = {});
  static EmbeddingModel load(const GgufFile& file, std::span<const Device> devices = {},
                             const LoadProgress& progress = {});

  /// Returns the embedding of each text. If `cancelled` returns true, returns the embeddings that are complete.
  /// Throws ArgumentError if a text has no tokens, if it has more than context_length() tokens (the message contains
  /// both numbers) and `truncate` is false, or if a vector is
  /// not finite, or is zero and cannot be normalised.
  std::vector<EmbeddingResult> embed(std::span<const std::string> texts, const EmbeddingOptions& options = {}) const;
  /// Like the function above, but for texts that are already tokenised. `prefix` is ignored.
  std::vector<EmbeddingResult> embed(std::span<const std::vector<TokenId>> texts,
                                     const EmbeddingOptions& options = {}) const;
  /// Returns the embedding of one text.
  EmbeddingResult embed(std::string_view text, const EmbeddingOptions& options = {}) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }  ///< The tokenizer of the model's file.
  Pooling pooling() const { return pooling_; }               ///< The model's pooling; see read_pooling.
  /// True if embeddings are normalised by default: always, unless a folder of sentence-transformers does not do so.
  bool normalizes() const { return normalizes_; }
  const std::string& architecture() const;  ///< The architecture, such as "bert".
  const std::string& name() const;          ///< The model's name; may be empty.
  std::int64_t width() const;               ///< The number of elements of an embedding.
  /// Maximum number of tokens of a text; see read_max_tokens.
  std::int64_t context_length() const { return context_length_; }
  Device device() const;               ///< The device, or the first of several devices.
  std::uint64_t weight_bytes() const;  ///< Size of the weights in bytes.
  bool is_encoder() const { return std::holds_alternative<Encoder>(model_); }  ///< True unless it is a language model.

 private:
  EmbeddingModel(std::variant<Encoder, Llama> model, Tokenizer tokenizer, const GgufFile& file);
  bool fit(std::vector<TokenId>& tokens, std::size_t text, bool truncate) const;
  std::optional<std::vector<float>> states_of(std::span<const std::vector<TokenId>> texts,
                                              const EmbeddingOptions& options) const;

  std::variant<Encoder, Llama> model_;
  Tokenizer tokenizer_;
  Pooling pooling_;
  bool normalizes_;
  std::int64_t context_length_;
};

/// Estimates the memory of an embedding model that reads texts of up to `context` tokens (0: read_max_tokens()) in
/// steps of up to `batch` tokens, as estimate_memory does. Throws the errors of EmbeddingModel::load, and ArgumentError
/// if a number is out of range.
ModelMemory estimate_embedding_memory(const GgufFile& file, std::span<const Device> devices, std::int64_t context = 0,
                                      std::int64_t batch = 512);

/// Returns the cosine of the angle between two vectors: 1 if they have the same direction. Throws ArgumentError if the
/// vectors have different sizes.
double cosine_similarity(std::span<const float> a, std::span<const float> b);

}  // namespace tessera
