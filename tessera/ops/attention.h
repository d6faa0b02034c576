// SPDX-License-Identifier: Apache-2.0
// Attention over whole sequences, with gradients, for training. Attention over a KV cache is in transformer.h.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Options of attention.
struct AttentionOptions {
  bool causal = false;  ///< query i attends to keys 0 to i
  /// A bool mask is true for the keys that a query attends to. A float mask is added to the scores. The mask must
  /// broadcast to (batch, heads, queries, keys).
  std::optional<Array> mask = {};
  std::optional<double> scale = {};  ///< factor by which scores are multiplied; 1 / sqrt(size) if empty
};

/// Returns softmax(scale q k^T) v for each head (Vaswani et al. 2017), in the dtype of q. Names and arguments follow
/// PyTorch.
///
/// Shapes: q (batch, heads, queries, size), k (batch, key heads, keys, size), v (batch, key heads, keys, value size).
/// The result is (batch, heads, queries, value size). The number of heads must be a multiple of the number of key
/// heads; consecutive heads share a key head (Ainslie et al. 2023). 16-bit floats are computed in f32, except that
/// matrix units round the weights, at most 1, and in the backward pass the adjoints of the scores, to the dtype of the
/// operands. The result is zero for a query that attends to no key.
///
/// Scores are computed for a block of queries at a time, so the full score matrix is never stored. For the backward
/// pass, only the result and one number per query are kept, and the scores are recomputed (Dao et al. 2022).
///
/// Throws ShapeError or DeviceError if the operands do not match, and DtypeError unless all have the same float dtype.
/// Throws ArgumentError for a second derivative or a gradient of the mask.
Array scaled_dot_product_attention(const Array& q, const Array& k, const Array& v,
                                   const AttentionOptions& options = {});

}  // namespace tessera
