// SPDX-License-Identifier: Apache-2.0
// Encoders: BERT (Devlin et al. 2019) and related models, which compute a state for each token of a text. Every token
// attends to the whole text. EmbeddingModel turns the states into embeddings.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/llm/llama.h"

namespace tessera {

/// The configuration of an encoder, as read from the metadata of its file.
struct EncoderConfig {
  std::string architecture;         ///< the name of an EncoderArchitecture
  std::string name;                 ///< The model's name; may be empty.
  std::int64_t context_length = 0;  ///< maximum number of tokens of a text
  /// The dimensions of the model. `hidden` is the width of the feed-forward layers.
  std::int64_t width = 0, layers = 0, hidden = 0, heads = 0, head_size = 0, vocabulary = 0;
  std::int64_t token_types = 0;  ///< number of embeddings of token types, of which the first is used; 0: none
  float norm_epsilon = 1e-12f;   ///< Added to the variance in layer norms.
  std::optional<Rotary> rotary;  ///< none: positions are learned
  bool is_gated = false;         ///< feed-forward layers are gated by silu; otherwise their activation is gelu
};

/// Reads the configuration of an encoder. Throws FormatError if the architecture is not supported, if keys are missing
/// or inconsistent, or if the file contains an unsupported key or tensor.
EncoderConfig read_encoder_config(const GgufFile& file);
/// Reads the configuration of an encoder. Unsupported keys and tensors do not throw; they are appended to `unknown`.
EncoderConfig read_encoder_config(const GgufFile& file, std::vector<UnknownPart>& unknown);

/// The weights of an encoder on a device.
class Encoder {
 public:
  /// Loads the weights from a file and packs them for the device. The file is not needed afterwards. Throws the errors
  /// of read_encoder_config, and FormatError if a tensor is missing or its shape or type is wrong. Throws OutOfMemory.
  static Encoder load(const GgufFile& file, Device device, const LoadProgress& progress = {});
  Encoder(const Encoder&);
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(const Encoder&);
  Encoder& operator=(Encoder&&) noexcept;
  ~Encoder();

  const EncoderConfig& config() const { return config_; }  ///< The configuration, from the file's metadata.
  Device device() const { return device_; }                ///< The device of the weights.
  std::uint64_t weight_bytes() const;                      ///< Size of the weights in bytes.

  /// Reads several texts, given as tokens. Returns the state of each token, f32 (tokens of all texts, width), in the
  /// order of the texts. A state depends only on the tokens of its text. `cancelled` is called before each layer; if it
  /// returns true, forward() stops and returns an empty array. Throws ArgumentError if there is no text,
  /// or if a text has no tokens, more than the context length, or a token that is not in the vocabulary.
  Array forward(std::span<const std::vector<std::int32_t>> texts, const Callback<bool()>& cancelled = {}) const;

 private:
  struct Norm {
    Array weight, bias;
  };
  struct Layer;
  struct Step;
  Encoder();
  void check(std::span<const std::vector<std::int32_t>> texts) const;
  Array embed(const Step& step) const;
  Array normalise(const Array& x, const std::optional<Array>& y, const Norm& norm) const;
  Array attend(const Layer& l, const Array& x, Step& step) const;
  Array feed_forward(const Layer& l, const Array& x) const;
  template <class Use>
  void for_each_part(const Use& use) const;

  EncoderConfig config_;
  Device device_;
  Weight embedding_, positions_;
  std::optional<Array> type_;  ///< the embedding of the first token type (width,)
  Norm embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace tessera
