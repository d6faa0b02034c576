// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling of images, with PyTorch's shapes and defaults: images (n, channels, rows, columns).
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// A figure for rows and one for columns; a single number stands for both.
struct Extents2d {
  std::int64_t rows, columns;  ///< The two figures.
  /// The same for rows and columns.
  constexpr Extents2d(std::int64_t both) : rows(both), columns(both) {}
  /// One for rows and one for columns.
  constexpr Extents2d(std::int64_t row_count, std::int64_t column_count) : rows(row_count), columns(column_count) {}
  friend constexpr bool operator==(const Extents2d&, const Extents2d&) = default;
};

/// Options of conv2d.
struct Convolution2d {
  Extents2d stride = 1;     ///< Distance between windows.
  Extents2d padding = 0;    ///< zeros on each side
  Extents2d dilation = 1;   ///< distance between elements that a window reads
  std::int64_t groups = 1;  ///< Channels are split into this many groups, each convolved on its own.
};

/// x (n, channels, rows, columns) with weight (out, channels / groups, kernel rows, kernel columns) and bias (out,)
/// gives (n, out, rows', columns'), where rows' = (rows + 2 padding - dilation (kernel - 1) - 1) / stride + 1. (Nothing
/// is turned round: a cross-correlation, as everywhere in networks.) Floats of 16 and 32 bits accumulate in f32, f64 in
/// f64. No matrix of windows is written: beside the result, memory is taken for the weight in another order; the
/// gradients of x and the weight, which are products of the same kind, take as little. Kernels of 1 without stride and
/// padding are a matmul. ShapeError names the shapes; DtypeError of integers.
Array conv2d(const Array& x, const Array& weight, const std::optional<Array>& bias = {},
             const Convolution2d& options = {});
/// Without a bias: conv2d(x, weight, {.padding = 1}). (A template, so that {} still stands for no bias.)
template <class Options = Convolution2d>
Array conv2d(const Array& x, const Array& weight, const std::type_identity_t<Options>& options) {
  return conv2d(x, weight, std::nullopt, options);
}

/// Options of max_pool2d and average_pool2d.
struct Pool2d {
  Extents2d kernel;                      ///< Rows and columns of the window.
  std::optional<Extents2d> stride = {};  ///< the kernel's extents if empty
  Extents2d padding = 0;                 ///< at most half of the kernel
};

/// The largest element of each window, padding left out; NaN where there is one. (n, channels, rows', columns').
Array max_pool2d(const Array& x, const Pool2d& options);
/// The mean of each window, of floats. Padding counts as zeros, as PyTorch has it by default.
Array average_pool2d(const Array& x, const Pool2d& options);

/// How windows lie in an image.
struct Windows2d {
  Extents2d kernel;        ///< Rows and columns of a window.
  Extents2d stride = 1;    ///< Distance between windows.
  Extents2d padding = 0;   ///< Zeros added on each side.
  Extents2d dilation = 1;  ///< Distance between elements that a window reads.
};

/// What each window of a convolution sees of x (n, channels, rows, columns): (channels, kernel rows, kernel columns, n,
/// rows', columns'), 0 where that is padding.
Array windows2d(const Array& x, const Windows2d& options);
/// Its adjoint: images of `extents` in which each element is the sum of all that windows2d made of it. Summed in the
/// order of the kernel's elements, 16-bit floats as f32: the same bits in every run.
Array fold2d(const Array& windows, Extents2d extents, const Windows2d& options);

}  // namespace tessera
