// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Kernels that process windows of images, and find the positions of maxima.
#pragma once

#include <array>

#include "tessera/ops/convolution.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

struct WindowSpec {
  enum Kind : std::uint8_t {
    gather,     ///< computes windows2d
    fold,       ///< the adjoint of windows2d
    unpool,     ///< the adjoint of largest: adds each element of the result at its position in the image
    largest,    ///< the largest element of each window
    positions,  ///< the position of the largest element: row * columns + column, i32
    mean,
    spread  ///< the adjoint of mean; the elements have already been divided
  } kind;
  DType dtype;
  bool unit = true;    ///< the column stride of the windows is 1, so that adjacent windows are contiguous
  bool known = false;  ///< true: `sizes` are compiled in, and the dilation is 1; false: both are launch arguments
  std::array<std::uint8_t, 6> sizes = {};  ///< rows and columns of kernel, stride and padding
  bool spreads() const { return kind == unpool || kind == spread; }
  /// True if windows do not overlap and none extends beyond the image, so that each window writes its own elements.
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
/// Creates a specification. Small windows get a specialised kernel.
WindowSpec window_spec(WindowSpec::Kind kind, DType dtype, const Windows2d& windows);
ir::Function trace_windows(const WindowSpec& spec);

/// Returns the position of the first largest element of each window (row * columns + column, i32).
Array max_positions2d(const Array& x, const Pool2d& options);
/// Returns images of `extents` in which each element is the sum of the elements of `pooled` with that position.
Array unpool2d(const Array& pooled, const Array& positions, Extents2d extents, const Pool2d& options);
/// The adjoint of average_pool2d.
Array average_unpool2d(const Array& pooled, Extents2d extents, const Pool2d& options);

}  // namespace tessera::ops
