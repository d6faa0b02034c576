// SPDX-License-Identifier: Apache-2.0
// Attention with several heads, as a layer.
#pragma once

#include "tessera/nn/layers.h"

namespace tessera {

/// Self-attention of x (batch, tokens, size), or (tokens, size), with `heads` heads, which divide the size (Vaswani et
/// al., "Attention is all you need", 2017). Causal: a token sees itself and those before. Parameters as PyTorch's
/// MultiheadAttention: in_weight (3 size, size) for queries, keys and values begins by init::xavier_uniform, biases by
/// 0.
struct MultiHeadAttention {
  std::int64_t size = 0;                   ///< 0: as much as comes
  std::int64_t heads = 1;                  ///< The number of heads, which divides `size`.
  bool causal = false;                     ///< Position i sees positions 0 to i only.
  bool with_bias = true;                   ///< With `in_bias`, and a bias in `out`.
  Parameter in_weight = {}, in_bias = {};  ///< The projections to queries, keys and values, one below the other.
  Dense out = {};                          ///< The projection of the result.

  Array operator()(const Array& x) const;  ///< x (batch, positions, size) gives the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
