// SPDX-License-Identifier: Apache-2.0
// The Llama architecture as a trainable model. (llm/llama.h runs one from a file; llm/llama_writer.h writes the file.)
#pragma once

#include <vector>

#include "tessera/nn/layers.h"
#include "tessera/nn/norms.h"

namespace tessera {

/// Sizes of a LlamaNetwork. heads must divide the width into an even number of elements each; key_heads must divide
/// heads.
struct LlamaShape {
  /// Vocabulary size; number of blocks; elements per position; query heads; key and value heads.
  std::int64_t vocabulary = 0, layers = 0, width = 0, heads = 0, key_heads = 0;
  std::int64_t hidden = 0;     ///< width of the feed-forward part
  double dropout = 0;          ///< on the embedding, and on the result of attention and of the feed-forward part
  double norm_epsilon = 1e-5;  ///< Added to the mean square in norms.
  double rotary_base = 10000;  ///< The base of the rotary positions.

  /// Elements per head.
  std::int64_t head_size() const { return heads > 0 ? width / heads : 0; }
  /// Called by setup. Throws ShapeError, with the sizes, if they do not fit together.
  void check() const;
};
template <>
inline constexpr bool holds_no_arrays<LlamaShape> = true;

/// One block: attention with rotary positions of adjacent pairs (Su et al. 2021) and grouped key heads (Ainslie et al.
/// 2023), then SwiGLU (Shazeer 2020), each after an RMS norm and with a residual connection (Touvron et al. 2023). x
/// (batch, tokens, width) gives the same shape.
struct LlamaBlock {
  LlamaShape shape = {};                           ///< The network's sizes.
  RmsNorm attention_norm = {};                     ///< The norm before attention.
  Dense qkv = {};                                  ///< rows for the query heads, then key heads, then value heads
  Dense out = {};                                  ///< The projection of attention's result.
  RmsNorm inner_norm = {};                         ///< The norm before the feed-forward part.
  Dense gate_up = {};                              ///< rows for the gate, then for the values that it multiplies
  Dense down = {};                                 ///< The projection of the feed-forward part's result.
  Dropout after_attention = {}, after_inner = {};  ///< Dropout before each residual connection.

  Array operator()(const Array& x) const;  ///< x (batch, tokens, width) gives the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
};

/// Token ids (batch, tokens) of any integer dtype give logits (batch, tokens, vocabulary) of each next token:
/// `setup(LlamaNetwork{.shape = {...}}, {.seed = 1})`. The output matrix is tied to the embedding (Press and Wolf
/// 2017). Weights are initialised normally: standard deviation 0.02 for the embedding, 0.02 / sqrt(2 layers) for the
/// last projection before a residual connection (Radford et al. 2019), and 1 / sqrt(inputs) for others.
struct LlamaNetwork {
  LlamaShape shape = {};                ///< The network's sizes.
  Embedding embedding = {};             ///< The token embedding.
  Dropout dropout = {};                 ///< Dropout on the embedding.
  std::vector<LlamaBlock> blocks = {};  ///< The blocks, first to last.
  RmsNorm norm = {};                    ///< The norm before the output.

  Array operator()(const Array& ids) const;  ///< ids (batch, tokens) gives logits (batch, tokens, vocabulary).
  void set_up(const LayerSetup& at);         ///< Declares the parameters; called by setup().
};

}  // namespace tessera
