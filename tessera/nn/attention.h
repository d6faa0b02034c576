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
  std::int64_t size = 0;  ///< 0: as much as comes
  std::int64_t heads = 1;
  bool causal = false;
  bool with_bias = true;
  Parameter in_weight = {}, in_bias = {};
  Dense out = {};

  Array operator()(const Array& x) const;
  void set_up(const LayerSetup& at);
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
