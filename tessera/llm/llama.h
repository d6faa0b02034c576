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
#include "tessera/llm/recurrent_states.h"
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
    LayerKind kind = LayerKind::attention;  ///< The kind of the layer.
    std::int64_t key_heads = 0;             ///< number of heads of keys and values
    std::int64_t head_size = 0;             ///< number of elements of a head
    std::int64_t hidden = 0;                ///< width of the feed-forward layer
    std::int64_t source = 0;                ///< the layer whose keys and values are used: this one, or an earlier one
  };
  /// Layers with the gated delta rule: each head has a state of key size times value size elements.
  struct DeltaRule {
    /// Numbers of heads of keys and of values, and the number of elements of a key and of a value in a head.
    std::int64_t key_heads = 0, heads = 0, key_size = 0, value_size = 0;
    std::int64_t keys() const { return key_heads * key_size; }       ///< The elements of all keys of a token.
    std::int64_t values() const { return heads * value_size; }       ///< The elements of all values of a token.
    bool grouped = false;                                            ///< see Architecture::grouped_delta_heads
    std::int64_t channels() const { return 2 * keys() + values(); }  ///< The elements of queries, keys and values.
  };
  std::string architecture;         ///< one of known_architectures
  std::string name;                 ///< The model's name; may be empty.
  std::int64_t context_length = 0;  ///< maximum number of tokens
  /// The dimensions of the model. `hidden` is the width of the feed-forward layers. If layers differ, `hidden`,
  /// `key_heads` and `head_size` are those of the largest ones.
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
  float expert_scale = 1;  ///< multiplies the outputs of experts
  /// Details of experts; see Architecture.
  bool sigmoid_router = false, unnormalised = false, shared_gate = false, expert_biases = false,
       dense_and_experts = false;  ///< Layers have both kinds of feed-forward networks; see Architecture.
  bool sinks = false;              ///< each head has an attention sink; see Architecture
  bool parallel = false;           ///< attention and feed-forward layers have the same input
  /// The embedding, the attention scores and the logits are multiplied by these factors.
  float embedding_scale = 1, attention_scale = 1, logit_scale = 1;
  /// The outputs of layers are multiplied by this factor before they are added to the residual stream.
  float residual_scale = 1;
  float attention_cap = 0, output_cap = 0;  ///< Caps of attention scores and of logits; 0: no cap.
  std::vector<Layer> layer_kinds;           ///< The properties of each layer.
  /// The file's pooling type, if it is an embedding model; see EmbeddingModel. 0: the model generates text.
  std::int64_t pooling = 0;
  bool value_norms = false;      ///< values are normalised per head; see Architecture
  std::int64_t layer_input = 0;  ///< width of the embedding of the tokens that each layer has; 0: none
  bool gated_attention = false;  ///< the output of each attention head is multiplied by a sigmoid; see Architecture
  std::int64_t taps = 0;         ///< convolutions in recurrent layers: the number of tokens that they read
  DeltaRule delta;               ///< the dimensions of layers with the gated delta rule

  /// The kind of a layer.
  LayerKind kind_of(std::size_t layer) const {
    return layer < layer_kinds.size() ? layer_kinds[layer].kind : LayerKind::attention;
  }
  /// Number of layers of a kind.
  std::int64_t count_of(LayerKind kind) const;
  /// True if some layers keep a state of fixed size for each text.
  bool is_recurrent() const { return count_of(LayerKind::attention) < layers; }
  /// True if a layer has keys and values of its own.
  bool has_cache(std::size_t layer) const {
    return kind_of(layer) == LayerKind::attention && layer_kinds[layer].source == static_cast<std::int64_t>(layer);
  }
  /// True if all layers must be on one device: they share keys and values, or have inputs that are computed together.
  bool is_indivisible() const;
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
  /// Allocates a cache for `capacity` tokens. `dtype` must be f32 or f16, or i8 for blocks of 32 numbers as in Q8_0
  /// (see cache_row()), which need heads of whole blocks. Throws DtypeError or ShapeError otherwise.
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
  /// Drops all tokens after the first `length`, and returns the new number of tokens. For a model with recurrent
  /// layers, the cache has only the states after the last token and before the last call of Llama::forward or
  /// Decoder::step; it becomes empty if `length` is neither. Throws ArgumentError if the cache has fewer tokens.
  std::int64_t truncate(std::int64_t length);
  /// Sets the number of tokens that will be read in total. A model with LongRoPE chooses its factors based on this
  /// number. The default is the capacity of the cache. Throws ArgumentError if the cache is not empty.
  void expect(std::int64_t tokens);
  /// The number of tokens that was passed to expect(), or the default.
  std::int64_t expected() const { return expected_; }
  /// Returns the keys, then the values, of each layer that has its own: arrays (key heads, capacity, cache_row(head
  /// size)), which share the memory of the cache until it grows.
  std::vector<Array> arrays() const;
  /// Sets the number of tokens whose keys and values were written to arrays(). Throws ArgumentError if it is negative
  /// or exceeds the capacity.
  void set_length(std::int64_t length);
  /// Appends `tokens` tokens without keys and values, to estimate memory. Throws ArgumentError if they do not fit, or
  /// if the cache is on a device that computes (see DryRun).
  void skip(std::int64_t tokens);
  /// Increases the capacity. Reallocates one layer after the other, so that only one old buffer exists in addition to
  /// the cache. Throws OutOfMemory if memory runs out; the tokens remain valid. A Decoder must record its steps again.
  void grow(std::int64_t capacity);

 private:
  friend class Llama;
  friend class Decoder;
  /// Where the states of recurrent layers are.
  struct StateSlots {
    std::int64_t length = 0;  ///< the number of tokens before the state, or -1 if it does not exist
    std::int32_t slot = -1;   ///< -1: the state is zero
  };
  std::int32_t next_slot() const { return slot_ == 0 ? 1 : 0; }
  /// A step begins: it writes the states to the slot of the states before the last step.
  void begin_step() { before_.length = -1; }
  void append(std::int64_t tokens);
  Array ranges(std::int64_t tokens, Device device) const;

  std::vector<Array> keys_, values_;  // (key heads, capacity, head size); empty if has_cache() is false
  RecurrentStates states_;            // two slots
  std::int64_t length_ = 0, capacity_ = 0, expected_ = 0;
  std::int32_t slot_ = -1;           // the slot of the states after the last token, or -1 if they are zero
  StateSlots before_{.length = -1};  // the states before the last step
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
  /// Throws ArgumentError if the number of devices is not the number of layers, or if there are several devices and
  /// LlamaConfig::is_indivisible.
  static Llama load(const GgufFile& file, std::span<const Device> layers, const LoadProgress& progress = {});
  Llama(const Llama&);
  Llama(Llama&&) noexcept;
  Llama& operator=(const Llama&);
  Llama& operator=(Llama&&) noexcept;
  ~Llama();

  /// Compiles the kernels of short prompts and of single tokens in advance, and opens the vendor's library, so that the
  /// first prompt does not wait for compilation.
  void prepare() const;
  /// Returns how many tokens of a prompt to read next, if `rest` tokens remain and at most `most` are read at a time.
  /// The parts of a prompt have about the same length, so that all of them use the same memory.
  static std::int64_t next_piece(std::int64_t rest, std::int64_t most) {
    const std::int64_t pieces = (rest + most - 1) / most;
    return pieces == 0 ? 0 : (rest + pieces - 1) / pieces;
  }

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
  friend class BatchDecoder;
  template <class Use>
  void for_each_part(const Use& use) const;
  struct Past;
  Array attend(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past,
               const std::optional<Array>& temperatures) const;
  Array convolve(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past) const;
  Array delta_rule(const Layer& l, ops::LinearInput& x, std::size_t i, const Past& past) const;
  Array feed_forward(const Layer& l, ops::LinearInput& x, const Array& sum) const;
  Array layer_inputs(const Array& ids, const Array& x) const;
  Array add_layer_input(const Layer& l, const Array& x, const Array& input) const;
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
  /// Computes the inputs of all layers from the tokens and their embedding (Gemma 4).
  struct LayerInputs {
    Weight embedding;   ///< (vocabulary, layers * LlamaConfig::layer_input)
    Weight projection;  ///< (layers * LlamaConfig::layer_input, width)
    Array norm;         ///< (LlamaConfig::layer_input,)
  };
  std::optional<LayerInputs> layer_inputs_;
  Weight embedding_, output_;
  Array output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace tessera
