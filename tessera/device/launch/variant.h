// SPDX-License-Identifier: Apache-2.0
// Variants of a compiled kernel.
#pragma once

namespace tessera {

/// Which version of a kernel is compiled.
struct Variant {
  bool noalias = true;   ///< the buffers are disjoint; else some are the same view
  bool index64 = false;  ///< indices need 64 bits
  friend bool operator==(const Variant&, const Variant&) = default;
};

}  // namespace tessera
