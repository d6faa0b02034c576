// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Kernels of layers with a state of fixed size (recurrent.h).
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// A thread for each channel and sequence.
struct CausalConvolutionSpec {
  std::uint32_t taps = 4;
  friend bool operator==(const CausalConvolutionSpec&, const CausalConvolutionSpec&) = default;
  std::size_t hash() const { return hash_of({taps}); }
};
ir::Function trace_causal_convolution(const CausalConvolutionSpec& spec);

/// A thread for each column of a head's state and each sequence.
struct GatedDeltaSpec {
  std::uint32_t key_size = 128;
  friend bool operator==(const GatedDeltaSpec&, const GatedDeltaSpec&) = default;
  std::size_t hash() const { return hash_of({key_size}); }
};
ir::Function trace_gated_delta_rule(const GatedDeltaSpec& spec);

}  // namespace tessera::ops
