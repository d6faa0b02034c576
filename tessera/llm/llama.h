// SPDX-License-Identifier: Apache-2.0
// The Llama architecture (Touvron et al. 2023) and its near relatives, as a GGUF file's metadata describes them.
// A model lives on one device; a cache holds what it has read so far.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tessera/llm/gguf.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace tessera {

/// What the metadata says of a model. "qwen2" is Llama with biases on queries, keys and values, and the other rotary
/// pairs.
struct LlamaConfig {
  std::string architecture;  ///< "llama" or "qwen2"
  std::string name;
  std::int64_t context_length = 0;  ///< tokens the model was made for
  std::int64_t width = 0, layers = 0, hidden = 0, heads = 0, key_heads = 0, head_size = 0, vocabulary = 0;
  float norm_epsilon = 1e-5f;
  Rotary rotary;      ///< without factors, which are a tensor
  bool tied = false;  ///< the output is the token embedding
};

/// FormatError: an architecture that is not known (those that are, are named), keys that are missing or do not fit
/// together, a scaling of positions that is not supported.
LlamaConfig read_llama_config(const GgufFile& file);

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
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }
  std::uint64_t bytes() const;
  std::uint64_t bytes(Device device) const;  ///< of the layers there
  /// Forgets all tokens from `length` on.
  void truncate(std::int64_t length);
  /// Room for `capacity` tokens, unless there is; layer by layer, so that two copies of one are there at once and not of
  /// all. OutOfMemory leaves what was read as it is. A Decoder records anew.
  void grow(std::int64_t capacity);

 private:
  friend class Llama;
  friend class Decoder;
  std::vector<Array> keys_, values_;  // (key heads, capacity, head size)
  std::int64_t length_ = 0, capacity_ = 0;
};

/// Called while weights are loaded: the tensor that is next, bytes done, bytes in all.
using LoadProgress = std::function<void(const std::string& tensor, std::uint64_t done, std::uint64_t total)>;

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

  const LlamaConfig& config() const { return config_; }
  Device device() const { return devices_.front(); }  ///< where tokens go in
  const std::vector<Device>& layer_devices() const { return devices_; }
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
    Weight query, key, value, attention_output, gate, up, down;
    std::optional<Array> query_bias, key_bias, value_bias;
    std::optional<Array> output_bias, gate_bias, up_bias, down_bias;
    Rotary rotary;
  };
  friend class Decoder;
  template <class Use>
  void for_each_part(const Use& use) const;
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
