// SPDX-License-Identifier: Apache-2.0
// Multi-head attention as a layer.
#pragma once

#include "tessera/nn/layers.h"

namespace tessera {

/// Multi-head self-attention (Vaswani et al., "Attention is all you need", 2017) of x (batch, tokens, size) or (tokens,
/// size); `heads` must divide `size`. With `causal`, a token attends to itself and earlier tokens only. Parameters as
/// in PyTorch's MultiheadAttention: in_weight (3 size, size) for queries, keys and values is initialised by
/// init::xavier_uniform, biases by 0.
struct MultiHeadAttention {
  std::int64_t size = 0;                   ///< 0: taken from the input
  std::int64_t heads = 1;                  ///< Number of heads; divides `size`.
  bool causal = false;                     ///< Position i attends to positions 0 to i only.
  bool with_bias = true;                   ///< Adds `in_bias`, and a bias in `out`.
  Parameter in_weight = {}, in_bias = {};  ///< Projections to queries, keys and values, stacked along axis 0.
  Dense out = {};                          ///< Projection of the result.

  Array operator()(const Array& x) const;  ///< x (batch, positions, size) gives the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
