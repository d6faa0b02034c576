// SPDX-License-Identifier: Apache-2.0
// Internal. Parts of a transformer layer, each of which is one kernel where the device and the shapes allow it, and
// otherwise consists of the operations of transformer.h and weight.h. They have no gradients.
#pragma once

#include <array>

#include "tessera/ops/linear_input.h"

namespace tessera::ops {

/// True if parts of a layer can be single kernels. On CPUs a launch is cheap, and separate kernels use vectors better.
/// An observer of array operations sees the separate operations.
bool combines_operations(const Tiles& tiles);

/// The sum of two rows for each token, and the normalised sum.
struct AddNorm {
  Array sum;
  LinearInput normalised;
};
/// Returns x + y and rms_norm(x + y, weight, epsilon), prepared for products with `next`, or as rows
/// without them. x and y (tokens, columns) and weight (columns,) are f32. Without y, the sum is x. If `centres`, the
/// mean of each row of the sum is subtracted before it is normalised (layer norm, Ba et al. 2016).
AddNorm add_rms_norm(const Array& x, const std::optional<Array>& y, const Array& weight, float epsilon,
                     std::span<const Weight> next, bool centres = false);
/// Returns x - mean(x over the last axis).
Array centred(const Array& x);

/// How queries, keys and values become those of an attention layer.
struct HeadOptions {
  std::int64_t heads = 1, key_heads = 1, head_size = 64;
  std::optional<Rotary> rotary = {};  ///< none: queries and keys are not rotated
  std::optional<Array> bias = {};     ///< f32, added to queries, keys and values: ((heads + 2 key_heads) head_size,)
  /// Both or none: rms_norm before the rotation, of each head (head_size,) or of all heads together (heads head_size,).
  std::optional<Array> query_norm = {}, key_norm = {};
  std::optional<Array> value_norm = {};  ///< (head_size,): rms_norm of each head of values
  float epsilon = 1e-5f;
};
/// The columns of `parts` together are the queries, keys and values of each token; each of the three is inside one
/// part. Returns them as (tokens, heads or key heads, head size), after biases, norms and the rotation.
std::array<Array, 3> rotate_heads(std::span<const Array> parts, const HeadOptions& how, const Position& position);
/// Returns the first of these arrays. `parts` need not have keys and values.
Array rotate_queries(std::span<const Array> parts, const HeadOptions& how, const Position& position);
/// Does what rotate_heads does, in one kernel where possible. Stores keys and values in a cache as cache_store does,
/// and returns the queries (tokens, heads, head size).
Array rotate_and_store(std::span<const Array> parts, const HeadOptions& how, const Position& position, Array& keys,
                       Array& values);

/// Returns attention(...), prepared for a product with `next`. See transformer.h.
LinearInput attention(const Array& q, const Array& keys, const Array& values, const Position& past, float scale,
                      std::int64_t window, float cap, const std::optional<Array>& sinks, const Weight& next);

/// Returns the activation of `gate` times `partner`.
Array apply_gate(Gate kind, const Array& gate, const Array& partner);
/// The rows of `weights` together are gates and their partners. Returns the activation of each gate times its partner,
/// prepared for a product with `next`. `bias` (rows,) is added first.
LinearInput gate(LinearInput& x, std::span<const Weight> weights, const std::optional<Array>& bias, Gate gate,
                 const Weight& next);

}  // namespace tessera::ops
