// SPDX-License-Identifier: Apache-2.0
// The Llama architecture (Touvron et al. 2023) and its relatives (architectures.h), as a GGUF file's metadata describes
// them.
// A model lives on one device; a cache holds what it has read so far.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tessera/llm/architectures.h"
#include "tessera/llm/gguf.h"
#include "tessera/llm/load_weights.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace tessera {

/// What the metadata says of a model.
struct LlamaConfig {
  /// What differs from layer to layer.
  struct Layer {
    std::int64_t window = 0;  ///< tokens that a token sees, itself among them; 0: all
    bool rotates = true;      ///< Queries and keys rotate with their position.
  };
  std::string architecture;         ///< one of known_architectures
  std::string name;                 ///< The model's name; may be empty.
  std::int64_t context_length = 0;  ///< tokens the model was made for
  /// The model's sizes; `hidden` is that of the feed-forward part.
  std::int64_t width = 0, layers = 0, hidden = 0, heads = 0, key_heads = 0, head_size = 0, vocabulary = 0;
  float norm_epsilon = 1e-5f;            ///< Added to the mean square in norms.
  Rotary rotary;                         ///< without factors, which are a tensor or the next
  std::vector<float> frequency_factors;  ///< of YaRN, by pair
  Rotary local_rotary;                   ///< of layers with a window
  std::int64_t original_context = 0;     ///< LongRoPE: for longer texts the file has other factors
  /// Queries at position p are multiplied by 1 + this * log(1 + floor(p / original_context)) (Llama 4); 0: they are
  /// not.
  float temperature_scale = 0;
  bool tied = false;                            ///< the output is the token embedding
  Gate gate = Gate::silu;                       ///< The function of the gate.
  bool head_norms = false, post_norms = false;  ///< Which norms there are besides those of Llama; see Architecture.
  /// Factors of the embedding, and of the products of queries and keys.
  float embedding_scale = 1, attention_scale = 1;
  float attention_cap = 0, output_cap = 0;  ///< 0: none
  std::vector<Layer> layer_kinds;           ///< What differs, for each layer.
};

/// FormatError: an architecture that is not known (those that are, are named), keys that are missing or do not fit
/// together, a scaling of positions that is not supported.
LlamaConfig read_llama_config(const GgufFile& file);
/// What a file has and nobody reads, though it could change what the model computes.
struct UnknownPart {
  bool is_tensor;         ///< else a key
  std::string name, why;  ///< Its name, and why it cannot be used.
};
/// The same, but what would be refused for this reason alone is added to `unknown`.
LlamaConfig read_llama_config(const GgufFile& file, std::vector<UnknownPart>& unknown);

/// Keys and values of the tokens read so far, for every layer. Move-only: it is a state.
class KeyValueCache {
 public:
  /// Room for `capacity` tokens. `dtype`: f32 or f16.
  KeyValueCache(const LlamaConfig& config, std::int64_t capacity, Device device, DType dtype = DType::f16)
      : KeyValueCache(config, capacity, std::vector(static_cast<std::size_t>(config.layers), device), dtype) {}
  /// `layers`: the device of each layer.
  KeyValueCache(const LlamaConfig& config, std::int64_t capacity, std::span<const Device> layers,
                DType dtype = DType::f16);
  KeyValueCache(KeyValueCache&&) = default;
  KeyValueCache& operator=(KeyValueCache&&) = default;
  /// Tokens that were read.
  std::int64_t length() const { return length_; }
  /// Tokens that there is memory for.
  std::int64_t capacity() const { return capacity_; }
  std::uint64_t bytes() const;
  std::uint64_t bytes(Device device) const;  ///< of the layers there
  /// Forgets all tokens from `length` on.
  void truncate(std::int64_t length);
  /// The most tokens that will be read into it, by which a model with LongRoPE chooses how positions rotate; without
  /// this, the room there is while it is empty. ArgumentError: it is not empty.
  void expect(std::int64_t tokens);
  /// The number of tokens given to expect().
  std::int64_t expected() const { return expected_; }
  /// Room for `capacity` tokens, unless there is; layer by layer, so that two copies of one are there at once and not
  /// of all. OutOfMemory leaves what was read as it is. A Decoder records again.
  void grow(std::int64_t capacity);

 private:
  friend class Llama;
  friend class Decoder;
  std::vector<Array> keys_, values_;  // (key heads, capacity, head size)
  std::int64_t length_ = 0, capacity_ = 0, expected_ = 0;
};

/// A model on one device or several.
class Llama {
 public:
  /// Packs the file's weights for the device; the file is not needed afterwards. FormatError names the tensor whose
  /// shape or type is wrong; OutOfMemory leaves nothing behind.
  static Llama load(const GgufFile& file, Device device, const LoadProgress& progress = {});
  /// `layers`: the device of each layer; the embedding goes with the first, the output with the last. What passes from
  /// layer to layer is copied where the devices differ. ArgumentError if there are not as many as the model has layers.
  static Llama load(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress = {});

  /// Compiles the kernels that reading and generating need, so that the first prompt does not wait for them.
  void prepare() const;

  /// The configuration, from the metadata of the file.
  const LlamaConfig& config() const { return config_; }
  Device device() const { return devices_.front(); }  ///< where tokens go in
  /// The device of each layer.
  const std::vector<Device>& layer_devices() const { return devices_; }
  /// A cache for `capacity` tokens, on the devices of the layers.
  KeyValueCache make_cache(std::int64_t capacity, DType dtype = DType::f16) const {
    return KeyValueCache(config_, capacity, devices_, dtype);
  }
  std::uint64_t weight_bytes() const;
  std::uint64_t weight_bytes(Device device) const;  ///< of what lies there

  /// Reads `tokens` after what the cache holds, and appends them to it. Gives the logits (1, vocabulary) of the last
  /// token, or of each (tokens, vocabulary). ArgumentError: no tokens, an id outside of the vocabulary, or more tokens
  /// than the cache has room for.
  Array forward(std::span<const std::int32_t> tokens, KeyValueCache& cache, bool all_logits = false) const;

 private:
  struct Layer {
    Array attention_norm, feed_forward_norm;
    std::optional<Array> query_norm, key_norm, attention_post_norm, feed_forward_post_norm;
    Weight query, key, value;                 ///< or `query` has the rows of all three
    Weight attention_output, gate, up, down;  ///< or `up` has the rows of the gate, too, before its own
    std::optional<Array> query_bias, key_bias, value_bias;
    std::optional<Array> output_bias, gate_bias, up_bias, down_bias;
    Rotary rotary;
    std::optional<Array> long_factors;  ///< instead of rotary's, for long texts
  };
  friend class Decoder;
  template <class Use>
  void for_each_part(const Use& use) const;
  Array attend(const Layer& l, const Array& x, std::size_t i, const Position& past, KeyValueCache& cache,
               const std::optional<Array>& temperatures) const;
  Array feed_forward(const Layer& l, const Array& x) const;
  void check_tokens(std::span<const std::int32_t> tokens, const KeyValueCache& cache) const;
  /// The logits of `ids` (count,), which stand from `past` on; writes the cache's memory and nothing else of it.
  Array run(const Array& ids, const Position& past, KeyValueCache& cache, bool all_logits) const;

  LlamaConfig config_;
  std::vector<Device> devices_;  ///< of each layer
  Weight embedding_, output_;
  Array output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace tessera
