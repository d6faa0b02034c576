// SPDX-License-Identifier: Apache-2.0
// Internal: cross-entropy of class indices, for nn/losses.h.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Losses of rows of logits, and their gradient. With w = weight and t = the target of the row:
///
///     loss = (1 - smoothing) w[t] (log_sum - x[t]) + smoothing / columns * sum of w[j] (log_sum - x[j])
struct CrossEntropySpec {
  RowSpec row;            ///< its weight is the dtype of the gradient
  bool weighted = false;  ///< classes have weights
  bool smoothed = false;  ///< smoothing > 0
  friend bool operator==(const CrossEntropySpec&, const CrossEntropySpec&) = default;
  std::size_t hash() const { return hash_of({row.hash(), weighted, smoothed}); }
};
ir::Function trace_cross_entropy(const CrossEntropySpec& spec);
ir::Function trace_cross_entropy_backward(const CrossEntropySpec& spec);

/// Returns the cross-entropy of each row of logits, without reduction. One kernel computes the losses and reads the
/// logits once, another one the gradient.
///
/// logits are floats (batch, classes, ...) or (classes,). targets are i32 (batch, ...) or (). weight, if given, has the
/// compute dtype of the logits and shape (1, classes, 1, ...) or (classes,). The result has the shape of the targets
/// and is f32, or f64 for f64 logits. The loss of a target that is not a class is undefined; the caller must replace
/// it. Throws DeviceError if the arrays are on different devices.
Array cross_entropy_losses(const Array& logits, const Array& targets, const std::optional<Array>& weight,
                           double smoothing);

}  // namespace tessera::ops
