// SPDX-License-Identifier: Apache-2.0
// The Llama architecture (Touvron et al. 2023) and related architectures (architectures.h): the configuration, which is
// read from a GGUF file, the weights, and the KV cache.
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

namespace ops {
class LinearInput;
struct PagedTokens;
}  // namespace ops
class PagedCache;
struct SequencePiece;

/// Called before each tensor is loaded, with its name, the number of bytes loaded so far, and the total number of
/// bytes.
using LoadProgress = Callback<void(const std::string& tensor, std::uint64_t done, std::uint64_t total)>;

/// The configuration of a model, as read from the metadata of its file.
struct LlamaConfig {
  /// Properties that differ between layers.
  struct Layer {
    std::int64_t window = 0;  ///< number of tokens that a token attends to, including itself; 0: all tokens
    bool rotates = true;      ///< True if queries and keys have rotary position embeddings.
  };
  std::string architecture;         ///< one of known_architectures
  std::string name;                 ///< The model's name; may be empty.
  std::int64_t context_length = 0;  ///< maximum number of tokens
  /// The dimensions of the model. `hidden` is the width of the feed-forward layers.
  std::int64_t width = 0, layers = 0, hidden = 0, heads = 0, key_heads = 0, head_size = 0, vocabulary = 0;
  float norm_epsilon = 1e-5f;            ///< Added to the mean square in RMS norms.
  Rotary rotary;                         ///< does not contain factors; see `frequency_factors` and the file's tensors
  std::vector<float> frequency_factors;  ///< YaRN: a frequency factor for each rotary pair
  std::optional<Rotary> local_rotary;    ///< rotary parameters of layers with a window, if they differ
  std::int64_t ignored_window = 0;       ///< a sliding window in the file that the architecture ignores; 0: none
  std::int64_t original_context = 0;     ///< LongRoPE: longer texts use the long factors
  /// Queries at position p are multiplied by 1 + temperature_scale * log(1 + floor(p / original_context)), as in Llama
  /// 4. 0: no scaling.
  float temperature_scale = 0;
  /// Mixture of experts: the number of experts of a layer, how many of them a token uses, and their width. 0: none.
  std::int64_t experts = 0, used_experts = 0, expert_hidden = 0;
  std::int64_t shared_hidden = 0;  ///< width of the expert that all tokens use; 0: none
  bool tied = false;               ///< the output matrix is the token embedding
  Gate gate = Gate::silu;          ///< The activation of the gate.
  /// The norms of a layer; see Architecture.
  bool head_norms = false, projection_norms = false, input_norms = true, layer_norms = false, post_norms = false;
  /// Details of experts; see Architecture.
  bool unnormalised = false, shared_gate = false, expert_biases = false;
  bool sinks = false;     ///< each head has an attention sink; see Architecture
  bool parallel = false;  ///< attention and feed-forward layers have the same input
  /// The embedding, the attention scores and the logits are multiplied by these factors.
  float embedding_scale = 1, attention_scale = 1, logit_scale = 1;
  /// The outputs of layers are multiplied by this factor before they are added to the residual stream.
  float residual_scale = 1;
  float attention_cap = 0, output_cap = 0;  ///< Caps of attention scores and of logits; 0: no cap.
  std::vector<Layer> layer_kinds;           ///< The properties of each layer.
};

/// Reads the configuration of a model. Throws FormatError if the architecture or its rotary scaling is not supported,
/// if keys are missing or inconsistent, or if the file contains an unsupported key or tensor.
LlamaConfig read_llama_config(const GgufFile& file);
/// A key or tensor that is not supported and could change the model's results.
struct UnknownPart {
  bool is_tensor;         ///< True for a tensor, false for a key.
  std::string name, why;  ///< Name of the key or tensor, and the reason why it is not supported.
};
/// Reads the configuration of a model. Unsupported keys and tensors do not throw; they are appended to `unknown`.
LlamaConfig read_llama_config(const GgufFile& file, std::vector<UnknownPart>& unknown);

/// A KV cache: the keys and values of the tokens that were read, for every layer. Move-only.
class KeyValueCache {
 public:
  /// Allocates a cache for `capacity` tokens. `dtype` must be f32 or f16.
  KeyValueCache(const LlamaConfig& config, std::int64_t capacity, Device device, DType dtype = DType::f16);
  /// Allocates a cache on several devices. `layers` contains the device of each layer.
  KeyValueCache(const LlamaConfig& config, std::int64_t capacity, std::span<const Device> layers,
                DType dtype = DType::f16);
  KeyValueCache(KeyValueCache&&) noexcept;
  KeyValueCache& operator=(KeyValueCache&&) noexcept;
  ~KeyValueCache();
  /// Number of tokens in the cache.
  std::int64_t length() const { return length_; }
  /// Number of tokens that fit.
  std::int64_t capacity() const { return capacity_; }
  std::uint64_t bytes() const;
  std::uint64_t bytes(Device device) const;  ///< size of the part on this device, in bytes
  /// Drops all tokens after the first `length`. Throws ArgumentError if the cache has fewer tokens.
  void truncate(std::int64_t length);
  /// Sets the number of tokens that will be read in total. A model with LongRoPE chooses its factors based on this
  /// number. The default is the capacity of the cache. Throws ArgumentError if the cache is not empty.
  void expect(std::int64_t tokens);
  /// The number of tokens that was passed to expect(), or the default.
  std::int64_t expected() const { return expected_; }
  /// Increases the capacity. Reallocates one layer after the other, so that only one old buffer exists in addition to
  /// the cache. Throws OutOfMemory if memory runs out; the tokens remain valid. A Decoder must record its steps again.
  void grow(std::int64_t capacity);

 private:
  friend class Llama;
  friend class Decoder;
  std::vector<Array> keys_, values_;  // (key heads, capacity, head size)
  std::int64_t length_ = 0, capacity_ = 0, expected_ = 0;
};

/// The weights of a model on one or several devices.
class Llama {
 public:
  /// Loads the weights from a file and packs them for the device. The file is not needed afterwards. Throws the errors
  /// of read_llama_config, and FormatError if a tensor is missing or its shape or type is wrong. Throws OutOfMemory if
  /// the weights do not fit; all memory is freed in that case.
  static Llama load(const GgufFile& file, Device device, const LoadProgress& progress = {});
  /// Loads the weights to several devices. `layers` contains the device of each layer. The embedding is on the device
  /// of the first layer, and the output matrix on the device of the last layer. Activations are copied between devices.
  /// Throws ArgumentError if the number of devices is not the number of layers.
  static Llama load(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress = {});
  Llama(const Llama&);
  Llama(Llama&&) noexcept;
  Llama& operator=(const Llama&);
  Llama& operator=(Llama&&) noexcept;
  ~Llama();

  /// Compiles the kernels of short prompts and of single tokens in advance, and opens the vendor's library, so that the
  /// first prompt does not wait for compilation.
  void prepare() const;

  /// The configuration, from the file's metadata.
  const LlamaConfig& config() const { return config_; }
  Device device() const { return devices_.front(); }  ///< the device of the embedding
  /// The device of each layer.
  const std::vector<Device>& layer_devices() const { return devices_; }
  /// Creates a cache for `capacity` tokens on the devices of the layers.
  KeyValueCache make_cache(std::int64_t capacity, DType dtype = DType::f16) const;
  std::uint64_t weight_bytes() const;
  std::uint64_t weight_bytes(Device device) const;  ///< size of the weights on this device, in bytes

  /// Reads `tokens` and appends them to the cache. Returns the logits of the last token (1, vocabulary), or with
  /// `all_logits` the logits of each token (tokens, vocabulary). Throws ArgumentError if there are no tokens, if an id
  /// is not in the vocabulary, or if the tokens do not fit in the cache.
  Array forward(std::span<const std::int32_t> tokens, KeyValueCache& cache, bool all_logits = false) const;

  /// Reads tokens of several sequences in one step, and appends them to the sequences. Returns the logits of the last
  /// token of each piece that wants them (pieces, vocabulary), in the order of the pieces. With weights in a quantised
  /// format on the CPU, the bits of a sequence's logits do not depend on the other pieces, or on how its tokens are
  /// divided into pieces. Throws ArgumentError if a piece has no tokens or a token that is not in the vocabulary, if a
  /// sequence occurs twice, or if its pages have no room. The sequences are not changed if an error is thrown.
  Array forward(std::span<const SequencePiece> pieces, PagedCache& cache) const;

 private:
  Llama();
  struct Layer;
  friend class Decoder;
  template <class Use>
  void for_each_part(const Use& use) const;
  struct Past;
  Array attend(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past,
               const std::optional<Array>& temperatures) const;
  Array feed_forward(const Layer& l, ops::LinearInput& x) const;
  void check_tokens(std::span<const std::int32_t> tokens, const KeyValueCache& cache) const;
  void check_vocabulary(std::span<const std::int32_t> tokens) const;
  void check_pieces(std::span<const SequencePiece> pieces, const PagedCache& cache) const;
  /// Consecutive layers on one device.
  struct Part {
    std::size_t begin, end;  ///< layers [begin, end)
    Device device;
  };
  /// The tokens of a step whose logits are wanted: the last one, all, or those at these indices, i32 (count,).
  struct WantedLogits {
    bool all = false;
    std::optional<Array> rows = {};
  };
  /// Runs the layers of a part. The input is ids (count,) for the first part, and otherwise the result of the part
  /// before it, on this part's device. The result of the last part is the logits. Writes the arrays of the cache but
  /// does not change its length.
  Array run_part(const Part& part, const Array& input, const Past& past, const WantedLogits& wanted) const;

  LlamaConfig config_;
  std::vector<Device> devices_;  ///< the device of each layer
  std::vector<Part> parts_;
  Weight embedding_, output_;
  Array output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace tessera
