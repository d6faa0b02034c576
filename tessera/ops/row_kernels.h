// SPDX-License-Identifier: Apache-2.0
// Kernels on rows beside those of kernels.h: attention's scores, and adjoints of norms and softmax. Inside ops/ only.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Threads for a row of this many elements: no more than it has vectors for.
std::uint32_t row_threads(Device device, std::int64_t columns);

/// Softmax of rows in place, with the logarithm of each row's sum of exponentials; infinity where that sum is 0.
struct ScoresSpec {
  DType scores = DType::f32;
  std::uint32_t threads = 64;
  bool causal = false;  ///< row r of a matrix sees the first `first` + r + 1 elements, and becomes 0 behind them
  friend bool operator==(const ScoresSpec&, const ScoresSpec&) = default;
  std::size_t hash() const { return hash_of({static_cast<std::uint64_t>(scores), threads, causal}); }
};
ir::Function trace_scores(const ScoresSpec& spec);

/// Of contiguous rows, to the adjoint of what these were made of: from y and g, from x, g and the weight.
ir::Function trace_softmax_backward(const RowSpec& spec);
ir::Function trace_rms_norm_backward(const RowSpec& spec);

}  // namespace tessera::ops
