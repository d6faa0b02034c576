// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention share: softmax over parts of the scores (Milakov and Gimelshein 2018). Internal.
#pragma once

#include <limits>

#include "tessera/ir/value.h"

namespace tessera::ops {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Returns `value`, or 0 while all scores are -inf, so that exp(-inf - 0) keeps all sums at 0.
inline ir::Value shift_of(ir::Value value) {
  return ir::select(value == ir::literal(DType::f32, -infinity), ir::literal(DType::f32, 0), value);
}

/// Adds the weight of a sink, a score without a value, to the sum of exp(score - shift_of(largest)). A sink that is so
/// much larger than all scores that its weight is infinite makes the result 0.
inline ir::Value with_sink(ir::Value sum, ir::Value largest, ir::Value sink) {
  return sum + ir::exp(sink - shift_of(largest));
}

}  // namespace tessera::ops
