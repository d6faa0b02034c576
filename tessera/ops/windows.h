// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Kernels for windows of images, and the positions of maxima.
#pragma once

#include <array>

#include "tessera/ops/convolution.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

struct WindowSpec {
  enum Kind : std::uint8_t {
    gather,     ///< windows2d
    fold,       ///< its adjoint
    unpool,     ///< the adjoint of largest: adds each element at its position
    largest,    ///< the largest element of each window
    positions,  ///< the position of the largest element: row * columns + column, i32
    mean,
    spread  ///< the adjoint of mean; elements were divided before
  } kind;
  DType dtype;
  bool unit = true;    ///< the stride along columns is 1, so that adjacent windows are contiguous
  bool known = false;  ///< `sizes` are known and the dilation is 1; else they are known only at launch
  std::array<std::uint8_t, 6> sizes = {};  ///< rows and columns of kernel, stride and padding
  bool spreads() const { return kind == unpool || kind == spread; }
  /// Windows do not overlap and no window extends past the image, so each one writes its own elements.
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
/// Creates a specification; the usual small windows get a specialised kernel.
WindowSpec window_spec(WindowSpec::Kind kind, DType dtype, const Windows2d& windows);
ir::Function trace_windows(const WindowSpec& spec);

/// Returns the position of the first largest element of each window (row * columns + column, i32).
Array max_positions2d(const Array& x, const Pool2d& options);
/// Returns images of `extents` in which each element is the sum of the elements of `pooled` with its position.
Array unpool2d(const Array& pooled, const Array& positions, Extents2d extents, const Pool2d& options);
/// The adjoint of average_pool2d.
Array average_unpool2d(const Array& pooled, Extents2d extents, const Pool2d& options);

}  // namespace tessera::ops
