// SPDX-License-Identifier: Apache-2.0
// Attention for training: whole sequences, with a gradient. (That of a decoder over its cache is in transformer.h.)
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Options of attention.
struct AttentionOptions {
  bool causal = false;  ///< query i sees keys 0 to i
  /// Bools: a key is seen where it is true; floats are added to the scores. Broadcasts to (batch, heads, queries,
  /// keys).
  std::optional<Array> mask = {};
  std::optional<double> scale = {};  ///< of the scores; 1 / sqrt(size) if empty
};

/// softmax(scale q k^T) v for each head (Vaswani et al. 2017): q (batch, heads, queries, size), k (batch, key heads,
/// keys, size) and v (batch, key heads, keys, value size) give (batch, heads, queries, value size) of q's dtype. heads
/// is a multiple of key heads: those heads that follow each other share one (Ainslie et al. 2023). Names and arguments
/// are PyTorch's. 16-bit floats are computed as f32. A query that sees no key gives zeros.
///
/// Scores are computed for a part of the queries at a time and are never all in memory; the gradient keeps the result
/// and a number for each query, and computes them again (Dao et al. 2022). It has no derivative of its own, and none by
/// the mask: ArgumentError. ShapeError, DtypeError (one dtype of floats), DeviceError name what does not fit.
Array scaled_dot_product_attention(const Array& q, const Array& k, const Array& v,
                                   const AttentionOptions& options = {});

}  // namespace tessera
