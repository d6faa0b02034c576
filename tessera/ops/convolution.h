// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling of images (n, channels, rows, columns). Shapes and defaults follow PyTorch.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Extents in rows and columns; a single number sets both.
struct Extents2d {
  std::int64_t rows, columns;  ///< The number of rows and the number of columns.
  /// The same extent in both directions.
  constexpr Extents2d(std::int64_t both) : rows(both), columns(both) {}
  /// Separate extents for rows and columns.
  constexpr Extents2d(std::int64_t row_count, std::int64_t column_count) : rows(row_count), columns(column_count) {}
  friend constexpr bool operator==(const Extents2d&, const Extents2d&) = default;
};

/// Options of conv2d.
struct Convolution2d {
  Extents2d stride = 1;     ///< Distance between windows.
  Extents2d padding = 0;    ///< Zeros added on each side.
  Extents2d dilation = 1;   ///< Distance between the elements that a window reads.
  std::int64_t groups = 1;  ///< Number of groups of channels that are convolved independently.
};

/// 2-d convolution. As in PyTorch, the kernel is not flipped (cross-correlation).
///
/// Shapes: x (n, channels, rows, columns), weight (out, channels / groups, kernel rows, kernel columns), bias (out,).
/// The result is (n, out, rows', columns'), where rows' = (rows + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
///
/// 16-bit and 32-bit floats are accumulated in f32, f64 in f64. The matrix of windows (im2col) is never stored: apart
/// from the result, only a reordered copy of the weight is allocated. This is also true for the gradients of x and of
/// the weight. 1 x 1 kernels without stride and padding are computed by matmul.
///
/// Throws ShapeError if shapes do not match, and DtypeError for integers.
Array conv2d(const Array& x, const Array& weight, const std::optional<Array>& bias = {},
             const Convolution2d& options = {});
/// Without a bias: conv2d(x, weight, {.padding = 1}). It is a template so that `{}` as the third argument means "no
/// bias".
template <class Options = Convolution2d>
Array conv2d(const Array& x, const Array& weight, const std::type_identity_t<Options>& options) {
  return conv2d(x, weight, std::nullopt, options);
}

/// The part of a one-dimensional convolution that is returned.
enum class ConvolvedPart : std::uint8_t {
  full,   ///< all n + k - 1 elements; outside of the arrays, zeros are read
  same,   ///< the middle max(n, k) elements
  valid,  ///< the max(n, k) - min(n, k) + 1 elements that do not read outside of the longer array
};
/// Convolution of one-dimensional arrays of n and k elements (NumPy's convolve): out[i] is the sum of a[j] v[i - j].
/// Floats are computed by conv2d, integers with a temporary array of n k elements. The dtype is the promoted one;
/// integers wrap. Throws ShapeError if an array has no elements or not exactly one dimension.
Array convolve(const Array& a, const Array& v, ConvolvedPart part = ConvolvedPart::full);

/// Options of max_pool2d and average_pool2d.
struct Pool2d {
  Extents2d kernel;                      ///< Rows and columns of the window.
  std::optional<Extents2d> stride = {};  ///< Defaults to the extents of the kernel.
  Extents2d padding = 0;                 ///< At most half of the kernel's extents.
};

/// Returns the largest element of each window: (n, channels, rows', columns'). Padding is ignored. NaN propagates.
Array max_pool2d(const Array& x, const Pool2d& options);
/// Returns the mean of each window, for float dtypes. Padding is included as zeros, like PyTorch's default.
Array average_pool2d(const Array& x, const Pool2d& options);

/// The layout of windows in an image.
struct Windows2d {
  Extents2d kernel;        ///< Rows and columns of a window.
  Extents2d stride = 1;    ///< Distance between windows.
  Extents2d padding = 0;   ///< Zeros added on each side.
  Extents2d dilation = 1;  ///< Distance between the elements that a window reads.
};

/// Extracts the windows of x (n, channels, rows, columns), like im2col. Returns (channels, kernel rows, kernel columns,
/// n, rows', columns'). Elements in the padding are 0.
Array windows2d(const Array& x, const Windows2d& options);
/// The adjoint of windows2d. Returns images of `extents` in which each element is the sum of its copies in `windows`.
/// The copies are added in the order of the kernel's elements, 16-bit floats in f32, so that results are bit-identical
/// in all runs.
Array fold2d(const Array& windows, Extents2d extents, const Windows2d& options);

}  // namespace tessera
