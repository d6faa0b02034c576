// SPDX-License-Identifier: Apache-2.0
// The supported language model architectures. The table describes how each architecture differs from Llama, which has
// norms before attention and feed-forward layers, gated feed-forward layers, and rotary position embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/ops/transformer.h"

namespace tessera {

/// What a layer of a decoder does before its feed-forward layer.
enum class LayerKind : std::uint8_t {
  attention,    ///< attention to the keys and values of earlier tokens
  convolution,  ///< a gated convolution over the last few tokens (LFM2)
  delta_rule    ///< linear attention with the gated delta rule (Yang, Kautz and Hatamizadeh 2024)
};

/// Describes how the decoder of an architecture differs from Llama.
struct Architecture {
  std::string_view name;                    ///< the architecture's name in `general.architecture`
  std::string_view models;                  ///< models that use this architecture, for messages
  RotaryPairs pairs = RotaryPairs::halves;  ///< Which elements of a head are rotated together.
  Gate gate = Gate::silu;                   ///< The activation of the gate.
  bool head_norms = false;                  ///< queries and keys are normalised per head, before rotation
  bool projection_norms = false;  ///< queries and keys are normalised over all heads together, before rotation
  bool input_norms = true;        ///< the inputs of attention and feed-forward layers are normalised
  bool layer_norms = false;       ///< norms subtract the mean of a row
  bool parallel = false;          ///< attention and feed-forward layers have the same input
  bool post_norms = false;        ///< the outputs of attention and feed-forward layers are normalised
  bool scaled_embedding = false;  ///< the embedding is multiplied by sqrt(width)
  bool scales = false;            ///< The metadata contains scales, for example of the residual stream.
  bool scaled_logits = false;     ///< The metadata contains a factor of the logits.
  bool caps = false;              ///< attention scores and logits may be capped; the caps are in the metadata
  /// If greater than 1, every n-th layer attends to all tokens, and the other layers attend to a window of recent
  /// tokens. 1: all layers use a window. 0: no layer uses one.
  std::int64_t window_period = 0;
  std::int64_t window = 0;        ///< default window size in tokens, if it is not in the metadata
  float local_base = 0;           ///< rotary base of layers with a window; 0: same as other layers
  bool unscaled_windows = false;  ///< layers with a window have no rotary scaling
  bool rotates_windows = false;   ///< in models with windows, only layers with a window have a rotary embedding
  std::int64_t fixed_period = 0;  ///< every n-th layer has no rotary embedding; 0: all layers have one
  /// Models with this number of layers divide attention scores by sqrt(width / heads), others by sqrt(head size).
  std::int64_t layers_of_wide_scale = 0;
  /// Positions may consist of time, height and width, and the metadata assigns rotary pairs to each of them. For text,
  /// all three are equal, and the result is the same as with one-dimensional positions.
  bool sections = false;
  bool experts = false;  ///< feed-forward layers may consist of experts
  /// The weights of experts are the sigmoids of their logits, and a bias is added to choose experts.
  bool sigmoid_router = false;
  bool unnormalised = false;     ///< weights of experts are a softmax over all experts, not only over those of a token
  bool shared_expert = false;    ///< layers of experts may contain an expert that all tokens use
  bool shared_gate = false;      ///< the output of this expert is multiplied by a sigmoid
  bool temperature = false;      ///< queries may be scaled by a function of their position
  bool sinks = false;            ///< each head has a sink; see attention() in transformer.h
  bool expert_biases = false;    ///< the router and the experts have biases
  bool value_norms = false;      ///< values are normalised per head; a layer without a matrix for values uses the keys
  bool unscaled_scores = false;  ///< attention scores are not divided by the square root of the head size
  /// Layers with a window have heads of another size, and layers may differ in their numbers of key heads and in the
  /// width of the feed-forward layer. The last layers may use keys and values of an earlier one.
  bool varied_layers = false;
  bool layer_inputs = false;  ///< each layer may have an embedding of the tokens; see LlamaConfig::layer_input
  bool layer_scales = false;  ///< the output of each layer may be multiplied by a number
  /// Layers of experts also have an ordinary feed-forward layer, and the outputs of both are normalised. Experts and
  /// their router have norms of their own.
  bool dense_and_experts = false;
  bool exact_yarn = false;                     ///< YaRN's first and last pair are not rounded to whole numbers
  LayerKind recurrent = LayerKind::attention;  ///< the kind of the layers without attention
  /// Delta rule: the value heads of a key head are consecutive, and one matrix has the rows of beta and of the decay.
  bool grouped_delta_heads = false;
  bool gated_attention = false;  ///< the output of each attention head is multiplied by a sigmoid
  std::string_view output_norm = "output_norm.weight";     ///< the norm before the output matrix, in files
  std::string_view feed_forward_norm = "ffn_norm.weight";  ///< the norm before feed-forward layers, in files
};

/// Describes a model that reads a text in both directions and does not generate text (Devlin et al. 2019). Its layers
/// are normalised after they are added to their input.
struct EncoderArchitecture {
  std::string_view name;    ///< the architecture's name in `general.architecture`
  std::string_view models;  ///< models that use this architecture, for messages
  bool rotates = false;     ///< rotary instead of learned positions
  bool is_gated = false;    ///< feed-forward layers are gated by silu; otherwise their activation is gelu
};

/// Returns the encoder with this name, or null.
const EncoderArchitecture* find_encoder_architecture(std::string_view name);
/// Returns "bert and nomic-bert" for messages.
std::string encoder_architecture_names();

std::span<const Architecture> known_architectures();  ///< All supported architectures.
/// Returns the architecture with this name, or null.
const Architecture* find_architecture(std::string_view name);
/// Returns "llama, qwen2, ..." for messages.
std::string architecture_names();
/// Returns the reason why an architecture is not supported, such as "mixture-of-experts models are not supported".
/// Returns an empty string if the name is unknown.
std::string_view missing_in_architecture(std::string_view name);

}  // namespace tessera
