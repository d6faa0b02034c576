// SPDX-License-Identifier: Apache-2.0
// Variants of a compiled kernel.
#pragma once

namespace tessera {

/// Selects the version of a kernel to compile.
struct Variant {
  bool noalias = true;   ///< the buffers do not overlap; false if some are the same view
  bool index64 = false;  ///< indices do not fit in 32 bits
  /// All buffers that the kernel accesses in vectors (ir::Function::aligned_vectors) begin at multiples of 16 bytes.
  bool aligned = true;
  friend bool operator==(const Variant&, const Variant&) = default;
};

}  // namespace tessera
