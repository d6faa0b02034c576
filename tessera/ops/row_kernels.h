// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Kernels on rows in addition to those of kernels.h: attention scores, and the backward passes of
// norms and softmax.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Number of threads for a row of `columns` elements.
std::uint32_t row_threads(Device device, std::int64_t columns);

/// Softmax of rows in place. Also stores the logarithm of each row's sum of exponentials, or infinity if that sum is 0.
struct ScoresSpec {
  DType scores = DType::f32;
  std::uint32_t threads = 64;
  bool causal = false;  ///< row r of a matrix uses its first `first` + r + 1 elements; the rest becomes 0
  friend bool operator==(const ScoresSpec&, const ScoresSpec&) = default;
  std::size_t hash() const { return hash_of({static_cast<std::uint64_t>(scores), threads, causal}); }
};
ir::Function trace_scores(const ScoresSpec& spec);

/// Backward passes for contiguous rows: softmax from y and g; rms_norm from x, g and the weight.
ir::Function trace_softmax_backward(const RowSpec& spec);
ir::Function trace_rms_norm_backward(const RowSpec& spec);

}  // namespace tessera::ops
