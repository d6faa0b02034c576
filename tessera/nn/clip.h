// SPDX-License-Identifier: Apache-2.0
// Gradient clipping. Call it after computing gradients and before the optimiser's step.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera {

namespace detail {
Array clip_norm(const Parts& gradient, double max_norm, double norm_type);
/// The norm over all arrays, and the factor by which clipping multiplies them.
struct ClipFactor {
  Array norm, factor;
};
ClipFactor clip_factor(std::span<const Array> gradient, double max_norm, double norm_type);
void clip_value(const Parts& gradient, double value);
}  // namespace detail

/// Options of clip_gradient_norm.
struct ClipOptions {
  double norm_type = 2;  ///< p of the p-norm; infinity selects the largest absolute value
};
/// Clips a gradient by its norm: multiplies all arrays by max_norm / (norm + 1e-6) if that factor is below 1 (Pascanu,
/// Mikolov, Bengio 2013). Returns the norm over all arrays before clipping, as an f32 or f64 scalar array on the
/// gradient's device. The multiplication is deferred and fused into the optimiser's kernels.
template <class Model>
Array clip_gradient_norm(Model& gradient, double max_norm, const ClipOptions& options = {}) {
  return detail::clip_norm(detail::parts_of(gradient), max_norm, options.norm_type);
}
/// Clamps each element of a gradient to [-value, value].
template <class Model>
void clip_gradient_value(Model& gradient, double value) {
  detail::clip_value(detail::parts_of(gradient), value);
}

}  // namespace tessera
