// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. More kernels on rows (see also kernels.h): attention scores, and the backward passes of norms and
// softmax.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// The number of threads for a row of `columns` elements.
std::uint32_t row_threads(const Tiles& tiles, std::int64_t columns);

/// Softmax of rows in place. Also stores the logarithm of each row's sum of exponentials, or infinity if the sum is 0.
struct ScoresSpec {
  DType scores = DType::f32;
  std::uint32_t threads = 64;
  bool causal = false;  ///< row r of a matrix uses only its first `first` + r + 1 elements; the others become 0
  friend bool operator==(const ScoresSpec&, const ScoresSpec&) = default;
  std::size_t hash() const { return hash_of({static_cast<std::uint64_t>(scores), threads, causal}); }
};
ir::Function trace_scores(const ScoresSpec& spec);

/// Backward passes for contiguous rows. Softmax reads y and g; rms_norm reads x, g and the weight.
ir::Function trace_softmax_backward(const RowSpec& spec);
ir::Function trace_rms_norm_backward(const RowSpec& spec);

}  // namespace tessera::ops
