// SPDX-License-Identifier: Apache-2.0
// The Llama architecture as a trainable model. llm/llama.h runs Llama models from files, and llm/llama_writer.h writes
// such files.
#pragma once

#include <vector>

#include "tessera/nn/layers.h"
#include "tessera/nn/norms.h"

namespace tessera {

/// Sizes of a LlamaNetwork. `heads` must divide `width`, the elements per head must be even, and `key_heads` must
/// divide `heads`.
struct LlamaShape {
  /// Vocabulary size, number of blocks, elements per token, number of query heads, and number of key and value heads.
  std::int64_t vocabulary = 0, layers = 0, width = 0, heads = 0, key_heads = 0;
  std::int64_t hidden = 0;     ///< width of the feed-forward layers
  double dropout = 0;          ///< dropout on the embedding, and on the results of attention and feed-forward layers
  double norm_epsilon = 1e-5;  ///< Added to the mean square in RMS norms.
  double rotary_base = 10000;  ///< Base of the rotary position embedding.

  /// Elements per head.
  std::int64_t head_size() const { return heads > 0 ? width / heads : 0; }
  /// Throws ShapeError with the sizes if they are inconsistent. Called by setup().
  void check() const;
};
template <>
inline constexpr bool holds_no_arrays<LlamaShape> = true;

/// A transformer block: attention, then a SwiGLU feed-forward part (Shazeer 2020). Each has an RMS norm before it and a
/// residual connection around it (Touvron et al. 2023). Attention uses rotary position embeddings of adjacent pairs (Su
/// et al. 2021) and grouped key heads (Ainslie et al. 2023). x (batch, tokens, width); returns the same shape.
struct LlamaBlock {
  LlamaShape shape = {};        ///< The network's sizes.
  RmsNorm attention_norm = {};  ///< The norm before attention.
  Dense qkv = {};               ///< projection to query heads, key heads and value heads, in this order
  Dense out = {};               ///< The output projection of attention.
  RmsNorm inner_norm = {};      ///< The norm before the feed-forward part.
  Dense gate_up = {};           ///< projection to the gate and to the values that it multiplies, in this order
  Dense down = {};              ///< The output projection of the feed-forward part.
  Dropout after_attention = {}, after_inner = {};  ///< Dropout before each residual connection.

  Array operator()(const Array& x) const;  ///< x (batch, tokens, width); returns the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
};

/// A Llama language model: `setup(LlamaNetwork{.shape = {...}}, {.seed = 1})`. Token ids (batch, tokens) may have any
/// integer dtype. The result is the logits of each next token (batch, tokens, vocabulary). The output matrix is tied to
/// the embedding (Press and Wolf 2017). Weights are initialised with a normal distribution. The standard deviation is
/// 0.02 for the embedding, 0.02 / sqrt(2 layers) for the last projection before a residual connection (Radford et al.
/// 2019), and 1 / sqrt(inputs) for other projections.
struct LlamaNetwork {
  LlamaShape shape = {};                ///< The network's sizes.
  Embedding embedding = {};             ///< The token embedding.
  Dropout dropout = {};                 ///< Dropout on the embedding.
  std::vector<LlamaBlock> blocks = {};  ///< The blocks, in order.
  RmsNorm norm = {};                    ///< The norm before the output.

  Array operator()(const Array& ids) const;  ///< ids (batch, tokens); returns logits (batch, tokens, vocabulary).
  void set_up(const LayerSetup& at);         ///< Declares the parameters; called by setup().
};

}  // namespace tessera
