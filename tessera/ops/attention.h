// SPDX-License-Identifier: Apache-2.0
// Attention over whole sequences, with a gradient, for training. Attention over a KV cache is in transformer.h.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Options of attention.
struct AttentionOptions {
  bool causal = false;  ///< query i attends to keys 0 to i
  /// Boolean: keys that are true are attended to. Float: added to the scores. Must broadcast to (batch, heads, queries,
  /// keys).
  std::optional<Array> mask = {};
  std::optional<double> scale = {};  ///< factor of the scores; 1 / sqrt(size) if empty
};

/// Returns softmax(scale q k^T) v for each head (Vaswani et al. 2017), in q's dtype. Names and arguments follow
/// PyTorch.
///
/// Shapes: q (batch, heads, queries, size), k (batch, key heads, keys, size), v (batch, key heads, keys, value size);
/// the result is (batch, heads, queries, value size). heads must be a multiple of key heads; consecutive heads share a
/// key head (Ainslie et al. 2023). 16-bit floats are computed as f32. A query that attends to no key yields zeros.
///
/// Scores are computed for some of the queries at a time, so the whole score matrix is never stored. The backward pass
/// keeps the result and one number per query and recomputes the scores (Dao et al. 2022).
///
/// Throws ArgumentError for a second derivative or a gradient of the mask, ShapeError or DeviceError if the operands do
/// not match, DtypeError unless all have the same float dtype.
Array scaled_dot_product_attention(const Array& q, const Array& k, const Array& v,
                                   const AttentionOptions& options = {});

}  // namespace tessera
