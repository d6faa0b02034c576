// SPDX-License-Identifier: Apache-2.0
// Windows over images: their kernels, and where the largest elements lay. Inside ops/ only.
#pragma once

#include "tessera/ops/convolution.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

struct WindowSpec {
  enum Kind : std::uint8_t {
    gather,     ///< windows2d
    fold,       ///< its adjoint
    unpool,     ///< the adjoint of largest: elements go to the positions that it gives
    largest,    ///< of each window
    positions,  ///< of the largest: row * columns + column, i32
    mean
  } kind;
  DType dtype;
  bool unit = true;  ///< windows are one column apart, so that neighbours lie side by side
  friend bool operator==(const WindowSpec&, const WindowSpec&) = default;
  std::size_t hash() const { return hash_of({kind, static_cast<std::uint64_t>(dtype), unit}); }
};
ir::Function trace_windows(const WindowSpec& spec);

/// Of each window of a pool, where in its image (row * columns + column, i32) the first largest element lies.
Array max_positions2d(const Array& x, const Pool2d& options);
/// Images of `extents` in which each element is the sum of those of `pooled` whose position it has.
Array unpool2d(const Array& pooled, const Array& positions, Extents2d extents, const Pool2d& options);

}  // namespace tessera::ops
