// SPDX-License-Identifier: Apache-2.0
// Multi-head attention as a layer.
#pragma once

#include "tessera/nn/layers.h"

namespace tessera {

/// Multi-head self-attention (Vaswani et al., "Attention is all you need", 2017). The input is (batch, tokens, size) or
/// (tokens, size). `heads` must divide `size`. If `causal` is set, each token attends only to itself and to earlier
/// tokens. Parameters are initialised as in PyTorch's MultiheadAttention. in_weight (3 size, size), which projects to
/// queries, keys and values, is initialised by init::xavier_uniform. Biases are initialised with 0.
struct MultiHeadAttention {
  std::int64_t size = 0;                   ///< Elements per token; 0: inferred from the input.
  std::int64_t heads = 1;                  ///< Number of heads; must divide `size`.
  bool causal = false;                     ///< Position i attends only to positions 0 to i.
  bool with_bias = true;                   ///< Adds `in_bias` to the projections, and a bias in `out`.
  Parameter in_weight = {}, in_bias = {};  ///< Projections to queries, keys and values, stacked along axis 0.
  Dense out = {};                          ///< The output projection.

  Array operator()(const Array& x) const;  ///< x (batch, positions, size); returns the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
