// SPDX-License-Identifier: Apache-2.0
// The Llama architecture (Touvron et al. 2023) and its relatives (architectures.h), as described by a GGUF file's
// metadata: the model's weights, and the cache of the tokens it has read.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/llm/architectures.h"
#include "tessera/llm/gguf.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace tessera {

/// Called while weights are loaded, with the next tensor's name, bytes done and total bytes.
using LoadProgress = Callback<void(const std::string& tensor, std::uint64_t done, std::uint64_t total)>;

/// The configuration of a model, from its metadata.
struct LlamaConfig {
  /// Properties that differ between layers.
  struct Layer {
    std::int64_t window = 0;  ///< number of tokens that a token attends to, including itself; 0: all
    bool rotates = true;      ///< Queries and keys are rotated by their position.
  };
  std::string architecture;         ///< one of known_architectures
  std::string name;                 ///< The model's name; may be empty.
  std::int64_t context_length = 0;  ///< maximum number of tokens
  /// The model's sizes; `hidden` is that of the feed-forward layers.
  std::int64_t width = 0, layers = 0, hidden = 0, heads = 0, key_heads = 0, head_size = 0, vocabulary = 0;
  float norm_epsilon = 1e-5f;            ///< Added to the mean square in norms.
  Rotary rotary;                         ///< without factors, which are a tensor or `frequency_factors`
  std::vector<float> frequency_factors;  ///< YaRN: a factor for each pair
  Rotary local_rotary;                   ///< for layers with a window
  std::int64_t original_context = 0;     ///< LongRoPE: longer texts use other factors
  /// Queries at position p are multiplied by 1 + temperature_scale * log(1 + floor(p / original_context)) (Llama 4); 0:
  /// no scaling.
  float temperature_scale = 0;
  bool tied = false;                            ///< the output is the token embedding
  Gate gate = Gate::silu;                       ///< The activation of the gate.
  bool head_norms = false, post_norms = false;  ///< Additional norms; see Architecture.
  /// Factors of the embedding, and of the products of queries and keys.
  float embedding_scale = 1, attention_scale = 1;
  float attention_cap = 0, output_cap = 0;  ///< 0: no cap
  std::vector<Layer> layer_kinds;           ///< The properties of each layer.
};

/// Reads the configuration. Throws FormatError if the architecture is not supported, keys are missing or inconsistent,
/// or a scaling of positions is not supported.
LlamaConfig read_llama_config(const GgufFile& file);
/// A key or tensor that is not supported and could change the model's results.
struct UnknownPart {
  bool is_tensor;         ///< else it is a key
  std::string name, why;  ///< Its name, and why it is not supported.
};
/// Same, but unsupported keys and tensors are appended to `unknown` instead of throwing.
LlamaConfig read_llama_config(const GgufFile& file, std::vector<UnknownPart>& unknown);

/// Keys and values of the tokens read so far, for every layer. Move-only.
class KeyValueCache {
 public:
  /// A cache for `capacity` tokens. `dtype` must be f32 or f16.
  KeyValueCache(const LlamaConfig& config, std::int64_t capacity, Device device, DType dtype = DType::f16);
  /// `layers`: the device of each layer.
  KeyValueCache(const LlamaConfig& config, std::int64_t capacity, std::span<const Device> layers,
                DType dtype = DType::f16);
  KeyValueCache(KeyValueCache&&) noexcept;
  KeyValueCache& operator=(KeyValueCache&&) noexcept;
  ~KeyValueCache();
  /// Number of tokens that were read.
  std::int64_t length() const { return length_; }
  /// Number of tokens that fit.
  std::int64_t capacity() const { return capacity_; }
  std::uint64_t bytes() const;
  std::uint64_t bytes(Device device) const;  ///< of the layers on this device
  /// Drops all tokens from `length` on.
  void truncate(std::int64_t length);
  /// Sets the number of tokens that will be read in total, from which a model with LongRoPE chooses its factors; the
  /// default is the capacity while the cache is empty. Throws ArgumentError if the cache is not empty.
  void expect(std::int64_t tokens);
  /// The number of tokens passed to expect().
  std::int64_t expected() const { return expected_; }
  /// Increases the capacity, layer by layer, so that only one layer exists twice at a time. OutOfMemory leaves the
  /// tokens intact. A Decoder records again afterwards.
  void grow(std::int64_t capacity);

 private:
  friend class Llama;
  friend class Decoder;
  std::vector<Array> keys_, values_;  // (key heads, capacity, head size)
  std::int64_t length_ = 0, capacity_ = 0, expected_ = 0;
};

/// A model on one or several devices.
class Llama {
 public:
  /// Packs the file's weights for the device; the file is not needed afterwards. Throws FormatError with the tensor
  /// whose shape or type is wrong; after OutOfMemory, no memory remains allocated.
  static Llama load(const GgufFile& file, Device device, const LoadProgress& progress = {});
  /// `layers`: the device of each layer; the embedding is on the first layer's device, the output on the last one's.
  /// Activations are copied between devices. Throws ArgumentError unless there is one device per layer.
  static Llama load(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress = {});
  Llama(const Llama&);
  Llama(Llama&&) noexcept;
  Llama& operator=(const Llama&);
  Llama& operator=(Llama&&) noexcept;
  ~Llama();

  /// Compiles the kernels for reading and generating, so that the first prompt does not wait for them.
  void prepare() const;

  /// The configuration, from the file's metadata.
  const LlamaConfig& config() const { return config_; }
  Device device() const { return devices_.front(); }  ///< the device of the embedding
  /// The device of each layer.
  const std::vector<Device>& layer_devices() const { return devices_; }
  /// Creates a cache for `capacity` tokens, on the devices of the layers.
  KeyValueCache make_cache(std::int64_t capacity, DType dtype = DType::f16) const;
  std::uint64_t weight_bytes() const;
  std::uint64_t weight_bytes(Device device) const;  ///< of the weights on this device

  /// Reads `tokens` and appends them to the cache. Returns the logits of the last token (1, vocabulary), or of each
  /// token (tokens, vocabulary). Throws ArgumentError if there are no tokens, an id is not in the vocabulary, or the
  /// cache has too little room.
  Array forward(std::span<const std::int32_t> tokens, KeyValueCache& cache, bool all_logits = false) const;

 private:
  Llama();
  struct Layer;
  friend class Decoder;
  template <class Use>
  void for_each_part(const Use& use) const;
  Array attend(const Layer& l, const Array& x, std::size_t i, const Position& past, KeyValueCache& cache,
               const std::optional<Array>& temperatures) const;
  Array feed_forward(const Layer& l, const Array& x) const;
  void check_tokens(std::span<const std::int32_t> tokens, const KeyValueCache& cache) const;
  /// The logits of `ids` (count,) at positions from `past`. Writes the cache's arrays, but not its length.
  Array run(const Array& ids, const Position& past, KeyValueCache& cache, bool all_logits) const;

  LlamaConfig config_;
  std::vector<Device> devices_;  ///< of each layer
  Weight embedding_, output_;
  Array output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace tessera
