// SPDX-License-Identifier: Apache-2.0
// Windows over images: their kernels, and where the largest elements lay. Inside ops/ only.
#pragma once

#include <array>

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
    mean,
    spread  ///< its adjoint, of elements that were divided before
  } kind;
  DType dtype;
  bool unit = true;    ///< windows are one column apart, so that neighbours lie side by side
  bool known = false;  ///< kernel, stride and padding are these, and the dilation 1; else only launches know them
  std::array<std::uint8_t, 6> sizes = {};  ///< rows and columns of each
  bool spreads() const { return kind == unpool || kind == spread; }
  /// Windows fill the image side by side, without an end of the last ones outside: each writes its own elements.
  bool apart() const {
    return known && sizes[0] == sizes[2] && sizes[1] == sizes[3] && sizes[4] + sizes[5] == 0 &&
           sizes[0] * sizes[1] <= 16;
  }
  friend bool operator==(const WindowSpec&, const WindowSpec&) = default;
  std::size_t hash() const {
    std::uint64_t all = 0;
    for (const std::uint8_t v : sizes) all = all << 8 | v;
    return hash_of({kind, static_cast<std::uint64_t>(dtype), unit, known, all});
  }
};
/// With what is worth a kernel of its own: the usual small windows.
WindowSpec window_spec(WindowSpec::Kind kind, DType dtype, const Windows2d& windows);
ir::Function trace_windows(const WindowSpec& spec);

/// Of each window of a pool, where in its image (row * columns + column, i32) the first largest element lies.
Array max_positions2d(const Array& x, const Pool2d& options);
/// Images of `extents` in which each element is the sum of those of `pooled` whose position it has.
Array unpool2d(const Array& pooled, const Array& positions, Extents2d extents, const Pool2d& options);
/// The adjoint of average_pool2d.
Array average_unpool2d(const Array& pooled, Extents2d extents, const Pool2d& options);

}  // namespace tessera::ops
