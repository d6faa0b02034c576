// SPDX-License-Identifier: Apache-2.0
// The Llama architecture as a model that is trained. (llm/llama.h runs one from a file; llm/llama_writer.h writes it.)
#pragma once

#include <vector>

#include "tessera/nn/layers.h"
#include "tessera/nn/norms.h"

namespace tessera {

/// Sizes of a LlamaNetwork. heads divide the width into an even number of elements each; key_heads divide the heads.
struct LlamaShape {
  /// Tokens; blocks; elements of a position; heads of queries; heads of keys and values.
  std::int64_t vocabulary = 0, layers = 0, width = 0, heads = 0, key_heads = 0;
  std::int64_t hidden = 0;     ///< of the feed-forward part
  double dropout = 0;          ///< of the embedding, and of what each half of a layer adds
  double norm_epsilon = 1e-5;  ///< Added to the mean square in norms.
  double rotary_base = 10000;  ///< The base of the rotary positions.

  /// Elements of a head.
  std::int64_t head_size() const { return heads > 0 ? width / heads : 0; }
  /// ShapeError, with the sizes, if they do not fit together. What setup asks.
  void check() const;
};
template <>
inline constexpr bool holds_no_arrays<LlamaShape> = true;

/// One layer: attention with rotary positions of adjacent pairs (Su et al. 2021) and grouped key heads (Ainslie et al.
/// 2023), then SwiGLU (Shazeer 2020), each behind an RMS norm and added to its input (Touvron et al. 2023).
/// x (batch, tokens, width) gives the same shape.
struct LlamaBlock {
  LlamaShape shape = {};        ///< The network's sizes.
  RmsNorm attention_norm = {};  ///< The norm before attention.
  Dense qkv = {};               ///< rows of the query heads, then of the key heads, then of the values
  Dense out = {};               ///< The projection of attention's result.
  RmsNorm inner_norm = {};      ///< The norm before the feed-forward part.
  Dense gate_up = {};           ///< rows of the gate, then of what it is multiplied by
  Dense down = {};              ///< The projection of the feed-forward part's result.
  Dropout after_attention = {}, after_inner = {};  ///< Dropout on what each half adds.

  Array operator()(const Array& x) const;  ///< x (batch, tokens, width) gives the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
};

/// Token ids (batch, tokens) of any integer dtype give logits (batch, tokens, vocabulary) of the token after each:
/// `setup(LlamaNetwork{.shape = {...}}, {.seed = 1})`. The output's matrix is the embedding's (Press and Wolf 2017).
/// Weights begin normal: the embedding of deviation 0.02, those that a layer ends with 0.02 / sqrt(2 layers) (Radford
/// et al. 2019), others 1 / sqrt(inputs).
struct LlamaNetwork {
  LlamaShape shape = {};                ///< The network's sizes.
  Embedding embedding = {};             ///< The tokens' vectors.
  Dropout dropout = {};                 ///< Dropout on the embedding.
  std::vector<LlamaBlock> blocks = {};  ///< The blocks, first to last.
  RmsNorm norm = {};                    ///< The norm before the output.

  Array operator()(const Array& ids) const;  ///< ids (batch, tokens) gives logits (batch, tokens, vocabulary).
  void set_up(const LayerSetup& at);         ///< Declares the parameters; called by setup().
};

}  // namespace tessera
